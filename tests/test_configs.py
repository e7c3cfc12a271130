"""The configurations: their values against golden files, and the sizes that they are known for."""

import importlib
import os
import pathlib
import re

import jax
import pytest

from bert_jax.config.group import flatten
from bert_jax.config.phases import parse_duration
from bert_jax.config.store import parse
from bert_jax.config.task import default_config
from bert_jax.models import MODELS
from bert_jax.optim.optimizers import OPTIMIZERS
from bert_jax.optim.schedules import SCHEDULES
from bert_jax.tasks import TASKS
from bert_jax.tasks.causal_lm import CausalLM
from bert_jax.training.state import init_params
from configs import babylm
from configs.sweeps import table5

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
GOLDEN = pathlib.Path(__file__).parent / "config" / "goldens" / "base_config.txt"
PRETRAINING = (
    *("bert", "bert:base", "bert:large", "bert:medium", "bert:small", "bert:mini", "bert:tiny"),
    *("base", "chinese", "large", "large_batch", "medium", "mini", "small", "tiny"),
    *("fast", "fast:large", "fast:medium", "fast:small", "fast:mini", "fast:tiny"),
    *("fast:plain", "fast:record", "fast:plain_mini", "fast:record_mini"),
    *(f"babylm:{name}" for name in babylm.RECIPES),
)
CAUSAL = (
    *("gpt", "gpt:tiny", "left_to_right"),
    *(f"left_to_right:{size}" for size in ("large", "tiny")),
)
BIDIRECTIONAL = ("elmo", "elmo:small")
FINETUNING = (
    *("classification", "multiple_choice", "ner", "span", "squad", "swag", "tagging"),
    *("embedding", "embedding:scored", "splade", "colbert", "cross_encoder"),
    *(f"glue:{name}" for name in ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")),
    *("glue:wnli", "glue:ax", "squad:v2", "ner:wnut17", "ner:wikigold"),
    *(f"chinese:{name}" for name in ("xnli", "chnsenticorp", "lcqmc", "msra_ner", "cmrc2018")),
)


def get_config(name: str):
    name, *argument = name.split(":")
    return importlib.import_module(f"configs.{name}").get_config(*argument)


@pytest.mark.parametrize("name", FINETUNING)
def test_a_published_score_says_where_it_is_from(name):
    """In the paper's percents, of the first metric; those of Table 5 are the sweep's."""
    config = get_config(name)
    score, source = config.published_score, config.published_in
    assert bool(score) == bool(source)
    if "Table 5" in source:
        place = table5.PAPER_TASKS.index(name.removeprefix("glue:"))
        assert 100 * score == pytest.approx(table5.PAPER["bert"][place])
    if source:
        assert (score > 1) == (config.task.name == "span")
        assert re.fullmatch(r"BERT-\w+, \w+ set \(Devlin et al\. 2019, Table \d\)", source)


def test_every_configuration_is_tested():
    names = {path.stem for path in (REPOSITORY / "configs").glob("*.py")}
    tested = (*PRETRAINING, *CAUSAL, *BIDIRECTIONAL, *FINETUNING)
    assert names == {name.split(":")[0] for name in tested}


@pytest.mark.parametrize("name", [*PRETRAINING, *CAUSAL, *BIDIRECTIONAL, *FINETUNING])
def test_every_configuration_passes_its_checks(name):
    config = get_config(name)
    parsed = parse(config)
    assert parsed.to_config_dict() == config
    assert config.task.name in TASKS and config.model.name in MODELS
    assert config.optimizer.name in OPTIMIZERS
    assert config.optimizer.schedule in SCHEDULES
    if name in FINETUNING:
        assert parsed.task.metrics == config.metrics and parsed.best_metric == config.metrics[0]


@pytest.mark.parametrize("recipe", ["plain", "record", "gpt_bert"])
def test_babylm_is_a_fast_recipe_with_the_rules_of_the_track(recipe):
    """BabyLM 2025: 10 million words, 10 epochs, checkpoints by 1 million up to 10, then by 10."""
    own = dict(flatten(get_config(f"babylm:{recipe}_mini")))
    fast = dict(flatten(get_config(f"fast:{recipe.replace('gpt_bert', 'plain')}_mini")))
    changed = {name: value for name, value in own.items() if fast[name] != value}
    objective = {"model.predicts_next": True, "causal_share": 0.0625}
    rules = {"epochs": 10.0, "data.max_words": 10_000_000, "data.source": ""}
    rules |= {"init_embeddings": "spectral", "model.vocab_size": 8192}
    rules |= {"data.mask_share": 1.0, "data.keep_share": 0.0, "data.random_share": 0.0}
    rules |= {"data.max_examples_per_row": 16, "data.document_separator": "line"}
    assert {length * rows for length, _, rows in changed.pop("phases")} == {8192}
    rules |= {} if recipe == "record" else {"data.segments": "doc_sentences"}
    for name, value in rules.items() | (objective.items() if recipe == "gpt_bert" else set()):
        assert changed.pop(name) == value
    words = [parse_duration("milestones", text) for text in changed.pop("checkpoint.milestones")]
    expected = [*range(1_000_000, 10_000_000, 1_000_000), *range(10**7, 10**8 + 1, 10**7)]
    assert words == [(number, "word") for number in expected]
    assert changed.keys() <= {"eval.every", "checkpoint.every", "log.every"}


def test_left_to_right_changes_only_the_mask_the_task_and_the_next_sentence():
    base, causal = dict(flatten(get_config("base"))), dict(flatten(get_config("left_to_right")))
    changed = {name: value for name, value in causal.items() if base.get(name) != value}
    assert changed == {
        "task.name": "causal_lm",
        "model.attention_pattern": "causal",
        "model.next_sentence": False,
        "metrics": ("causal_lm_loss", "causal_lm_accuracy", "perplexity"),
    }
    assert default_config("causal_lm").fields() == causal


@pytest.mark.parametrize(
    "name, sizes", [("gpt", "base,"), ("left_to_right", "base,"), ("elmo", "published, small.")]
)
def test_a_size_that_does_not_exist_is_named(name, sizes):
    with pytest.raises(ValueError, match=f"Unknown size 'huge'. Available: {sizes}"):
        get_config(f"{name}:huge")


def test_the_values_of_base_are_those_of_its_golden_file():
    lines = "".join(f"{name} = {value!r}\n" for name, value in flatten(get_config("base")))
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDEN.write_text(lines)
    assert lines == GOLDEN.read_text(), "as intended? UPDATE_GOLDENS=1 pytest rewrites the file"


def test_gpt_has_the_parameters_of_the_released_model_and_three_special_tokens():
    """The released model's 116,534,784 are those of 40,478 pieces (`params_shapes.json`)."""
    task = CausalLM(model=parse(get_config("gpt")).model)
    shapes = jax.eval_shape(lambda key: init_params(task, key), jax.random.key(0))
    assert shapes.keys() == {"gpt"}
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert count == 116_534_784 + 3 * 768
