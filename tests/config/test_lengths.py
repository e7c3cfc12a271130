"""The length of training and other values that somebody wrote win over those that follow."""

import pytest

import bert_jax
from bert_jax.config import experiments
from bert_jax.config.editing import set_fields, written
from bert_jax.config.encoders import ElmoConfig
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.layers import DEFAULT, GIVEN, Layer, merge
from bert_jax.config.phases import without_given
from bert_jax.config.run import PretrainingConfig
from bert_jax.config.task import default_config
from bert_jax.data.init_from import with_model
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import resolve

FILE = """
from bert_jax.tasks import default_config

def get_config():
    config = default_config("classification").to_config_dict()
    config.optimizer.learning_rate = 2e-5
    config.data.update({"lowercase": True})
    return config
"""


@pytest.fixture
def file(tmp_path) -> str:
    (tmp_path / "mine.py").write_text(FILE)
    return str(tmp_path / "mine.py")


@pytest.mark.parametrize("name", ["steps", "epochs", "examples", "tokens"])
def test_the_length_that_the_user_sets_is_the_only_one(name):
    for config in (FinetuningConfig(), PretrainingConfig(tokens=5)):
        fields, origins = merge([Layer(DEFAULT, config.fields()), Layer(GIVEN, {name: 7})])
        assert origins[name] == GIVEN and origins["seed"] == DEFAULT
        found = {n: fields[n] for n in ("epochs", "examples", "tokens")}
        replaced = {n for n in found if getattr(config, n)}
        assert {n for n, origin in origins.items() if origin == GIVEN} == {name} | replaced
        assert fields[name] == 7 and all(not v for n, v in found.items() if n != name)
        assert type(found["epochs"]) is float or name == "epochs"
    with pytest.raises(UserError, match="config.steps=7 and config.epochs=2 both give the length"):
        merge([Layer(GIVEN, {"steps": 7, "epochs": 2})])
    base = Layer(DEFAULT, {"steps": 9, "epochs": 3.0})
    assert merge([base, Layer("file", {"steps": 7})])[0] == {"steps": 7, "epochs": 0.0}
    both = {"steps": 7, "epochs": 2.0}
    assert merge([base, Layer("file", both)])[0] == both


def test_each_value_is_from_the_last_layer_that_has_it():
    """On the command line, with a preset and a file: what the report shows."""
    config = resolve("configs/bert.py:tiny", {"preset": "hf", "optimizer.epsilon": "1e-7"})
    origins = dict(config.origins)
    assert origins.keys() == config.fields().keys()
    found = {origins[name] for name in ("model.hidden_size", "optimizer.beta1")}
    assert found == {"file", "preset"}
    assert (origins["optimizer.epsilon"], config.optimizer.epsilon) == (GIVEN, 1e-7)
    assert origins["mesh.data"] == DEFAULT and origins["preset"] == GIVEN


def test_the_command_line_and_python_keep_the_length(file):
    config = resolve(file, {"steps": "6"})
    assert (config.steps, config.epochs) == (6, 0.0) and config.total_steps((100,)) == 6
    edited = bert_jax.get_config(file)
    edited.steps = 6
    for given in (edited, bert_jax.get_config(file, steps=6)):
        from bert_jax import api

        assert api.resolve(given, "").total_steps((100,)) == 6
    assert without_given({"epochs": "2", "seed": "1"}, {"steps"}) == {"seed": "1"}


@pytest.mark.parametrize(
    ("given", "steps"), [("1e6", 1_000_000), ("2_000", 2000), ("0x10", 16), (1e3, 1000)]
)
def test_numbers_of_steps(given, steps):
    config = FinetuningConfig().to_config_dict()
    set_fields(config, {"steps": given})
    assert config.steps == steps and type(config.steps) is int


@pytest.mark.parametrize("given", ["1e400", "nan", 2.5, "1e-3", ""])
def test_other_numbers_are_refused(given):
    with pytest.raises(UserError, match="config.steps takes a value of type int"):
        set_fields(FinetuningConfig().to_config_dict(), {"steps": given})


def test_what_a_file_sets_to_the_default_is_not_replaced_by_the_choices_of_a_model(file):
    config = experiments.load(file)
    by_file = written(config)
    assert by_file == {"optimizer.learning_rate", "data.lowercase"}
    fields = default_config("classification").fields() | {"init_from": "elmo"}
    assert fields["optimizer.learning_rate"] == 2e-5
    elmo = ElmoConfig().to_dict()
    found = with_model(fields, elmo, (), by_file)
    assert (found["optimizer.learning_rate"], found["task.pool"]) == (2e-5, "max")
    assert with_model(fields, elmo, ())["optimizer.learning_rate"] == 1e-3


def test_python_remembers_what_is_set_to_the_value_that_it_has(file):
    config = bert_jax.get_config(file)
    assert written(config) == set()
    config.optimizer.learning_rate = config.optimizer.learning_rate
    config.task.pool = "cls"
    assert written(config) == {"optimizer.learning_rate", "task.pool"}
    with pytest.raises(AttributeError, match="There is no field 'trian' here: did you mean 'tra"):
        config.data.trian = "a.csv"
