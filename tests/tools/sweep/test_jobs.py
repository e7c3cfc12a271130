"""Jobs of a sweep: seeds, shared data, order, command lines."""

import re

import pytest

from bert_jax.tools.cli.sweep import resolve
from bert_jax.tools.sweep import jobs
from bert_jax.tools.sweep.plan import Run, Sweep

pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
TINY = "configs/tiny.py"
CORPUS = {"data.source": "text:corpus.txt", "model.hidden_size": 32}
NER = {"data.train": "a.conll", "data.eval": "b.conll"}
BERT = Run("bert", TINY, CORPUS, system="bert", task="pretraining")


def ner(seeds: int = 1, after: str = "bert", **fields) -> Run:
    """Returns a fine-tuning."""
    return Run("ner", "configs/ner.py:wnut17", NER, after, seeds=seeds, **fields)


def make(*runs: Run, **options) -> dict[str, jobs.Job]:
    return {job.name: job for job in jobs.make_jobs(Sweep("S", runs), resolve, **options)}


def test_a_finetuning_waits_for_its_pretraining_and_that_for_its_data():
    made = make(BERT, ner(seeds=0, system="bert", task="ner"), seeds=2)
    data, bert, first, second = made.values()
    assert (data.kind, bert.name, bert.needs) == ("prepare", "bert", (data.name,))
    assert [(x.name, x.seed, x.needs) for x in (first, second)] == [
        ("ner-seed0", 0, ("bert",)),
        ("ner-seed1", 1, ("bert",)),
    ]
    assert (first.system, first.task) == ("bert", "ner")
    assert jobs.stages([*made.values()]) == [[data], [bert], [first, second]]
    # The model is that of the pre-training, which does not exist yet.
    assert first.settings["model"]["hidden_size"] == 32


def test_the_command_line_of_a_run_is_what_the_program_takes():
    bert = Run("bert", TINY, CORPUS | {"phases": ((64, 1.0),), "seed": 5, "log.every": 7})
    made = make(bert, ner(seeds=2), more={"log.every": "9"})  # replaces those of all runs
    assert made["ner-seed1"].command("DIR")[1:] == [
        *("-m", "bert_jax.main", "--config=configs/ner.py:wnut17", "--workdir=DIR/runs/ner-seed1"),
        *("--config.data.train=a.conll", "--config.data.eval=b.conll"),
        *("--config.log.every=9", "--config.init_from=DIR/runs/bert", "--config.seed=1"),
    ]
    words = made["bert"].command("DIR")
    assert "--config.phases=((64, 1.0),)" in words and made["bert"].seed == 5
    assert words.count("--config.log.every=9") == 1 and "--config.log.every=7" not in words
    prepare = next(iter(made.values())).command("DIR")
    assert prepare[1:4] == ["-m", "bert_jax", "prepare"]
    (folder,) = (word for word in prepare if word.startswith("--data_dir="))
    assert f"--config.data.dir={folder.removeprefix('--data_dir=')}" in words


def test_runs_with_the_same_data_settings_share_the_data():
    made = make(
        BERT,
        Run("no_nsp", TINY, CORPUS | {"model.next_sentence": False, "optimizer.learning_rate": 1}),
        Run("masks", TINY, CORPUS | {"data.masked_lm_prob": 0.3}),  # drawn on the device
        Run("seeds", TINY, CORPUS, seeds=2),
        Run("static", TINY, CORPUS | {"data.mode": "static"}),
        Run("elsewhere", TINY, CORPUS | {"data.dir": "my/data"}),
    )
    folders = {name: job.overrides["data.dir"] for name, job in made.items()}
    shared = ("bert", "no_nsp", "masks", "seeds-seed0", "seeds-seed1")
    assert len({folders[name] for name in shared}) == 1
    assert len({folders[name] for name in ("bert", "static", "elsewhere")}) == 3
    assert folders["elsewhere"] == "my/data"
    assert sum(job.kind == "prepare" for job in made.values()) == 3


def test_a_run_can_take_the_vocabulary_of_another_ones_data():
    vocab = {"data.vocab": "{data:bert}/vocab.txt", "data.dupe_factor": 1}
    made = make(BERT, Run("full", TINY, CORPUS | vocab))
    folder, (data,) = made["bert"].overrides["data.dir"], made["bert"].needs
    assert made["full"].overrides["data.vocab"] == f"{folder}/vocab.txt"
    assert data in made["full"].needs and "bert" not in made["full"].needs
    assert [len(stage) for stage in jobs.stages([*made.values()])] == [1, 2, 1]


def test_each_seed_starts_from_the_pretraining_of_its_seed():
    runs = Run("bert", TINY, CORPUS, seeds=2), ner(seeds=0)
    made = make(*runs, seeds=2)
    assert [made[f"ner-seed{i}"].needs for i in (0, 1)] == [("bert-seed0",), ("bert-seed1",)]
    with pytest.raises(ValueError, match="Run ner: seed number 3 needs a seed of bert"):
        make(*runs, seeds=3)


def test_a_finetuning_takes_the_kind_of_model_of_its_pretraining():
    gpt = Run("gpt", "configs/gpt.py:tiny", {"data.source": "text:x"})
    model = make(gpt, ner(after="gpt"))["ner"].settings["model"]
    expected = {"name": "gpt", "attention_pattern": "causal", "hidden_size": 128}
    assert model.items() >= expected.items()


@pytest.mark.parametrize(
    "runs, message",
    [
        ([Run("a", "configs/tni.py")], "Run a: --config=configs/tni.py: there is no such file"),
        ([Run("a", TINY, {"stps": 3})], "Run a: There is no configuration field 'stps'"),
        ([Run("a", TINY, {"steps": "x"})], "--config.steps takes a value of type int"),
        (
            [Run("a", TINY, CORPUS, seeds=2), Run("a-seed1", TINY, CORPUS)],
            "Run a-seed1: two jobs have the name 'a-seed1'",
        ),
        (
            [ner(after=""), Run("b", TINY, {"data.vocab": "{data:ner}/vocab.txt"})],
            "Run b: {data:ner} is not prepared data: ner does not train on a corpus",
        ),
        (
            [BERT, Run("gpt", "configs/gpt.py:tiny", CORPUS, after="bert")],
            "Run gpt: config.init_from= has another kind of model",
        ),
        ([Run("a", "configs/ner.py", {**NER, "init_from": "nowhere"})], "Run a: nowhere"),
    ],
)
def test_a_wrong_run_is_refused_by_name(runs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(*runs)


def test_only_some_runs_and_what_they_need_are_selected():
    made = make(BERT, Run("other", TINY, CORPUS), ner(at_step=500))
    assert made["ner"].snapshot == ("bert", 500)
    assert "--config.init_from=DIR/snapshots/bert-step500" in made["ner"].command("DIR")
    selected = [job.name for job in jobs.select([*made.values()], "^ner$")]
    assert selected == [*made["bert"].needs, "bert", "ner"]
    for pattern, message in (
        ("squad", "--only=squad matches no run. Runs: data-"),
        ("(", r"--only=\( is not a regular expression"),
    ):
        with pytest.raises(ValueError, match=message):
            jobs.select([*made.values()], pattern)
