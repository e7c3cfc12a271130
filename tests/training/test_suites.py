"""Minimal pairs that evaluations score during training, compared with the command's scores."""

import json

import pytest

import bert_jax
from bert_jax.config.store import parse
from bert_jax.files.errors import UserError
from bert_jax.training.listener import Listener
from bert_jax.training.suites import check_suites
from tests import tiny
from tests.runs.conftest import SMALL as RUN
from tests.training.labelled_files import FILLERS

VOCABULARY = [*tiny.SPECIAL, *FILLERS, "."]
# The text has fewer different words than spectral embeddings need.
SMALL = RUN | {"init_embeddings": "random"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suites")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    texts = (f"the {a} of the {b} .\nthe {b} .\n\n" for a in FILLERS for b in FILLERS)
    (folder / "corpus.txt").write_text("".join(texts))
    pairs = [
        {"good": f"the {a} of {b} .", "bad": f"{a} the of {b} .", "paradigm": a}
        for a in FILLERS[2:5]
        for b in FILLERS[2:]
    ]
    (folder / "order.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return folder


@pytest.mark.parametrize("name", ["tiny", "left_to_right"])
def test_each_evaluation_scores_a_sample_of_the_pairs(name, folder, tmp_path):
    suite = str(folder / "order.jsonl")
    values = SMALL | {
        "model__vocab_size": len(VOCABULARY),
        "data__source": f"text:{folder / 'corpus.txt'}",
        "data__vocab": str(folder / "vocab.txt"),
        "eval__suites": (suite,),
        "eval__pairs_per_paradigm": 3,
    }
    config = bert_jax.get_config(name, **values)
    model = bert_jax.train(config, tmp_path / "run", listener=Listener())
    found = model.history["validation_order_accuracy"]
    assert len(found) == 3  # of steps 7, 14 and 20
    result = bert_jax.evaluate_suite(model, suite, per_paradigm=3)
    assert found[-1] == pytest.approx(result.scores.mean.value, abs=1e-9)
    assert len(result.pairs) == 9 and result.scores.ties == 0


@pytest.mark.parametrize(
    "name, metric",
    [("other/order.csv", "order_accuracy"), ("masked_lm.csv", "masked_lm_accuracy")],
)
def test_suites_do_not_replace_each_other_or_a_metric(name, metric, folder, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("good,bad\nthe dog .,dog the .\n")
    suites = (str(folder / "order.jsonl"), str(path))
    with pytest.raises(UserError, match=f"would be called {metric}, as those of another"):
        check_suites(parse(bert_jax.get_config("tiny", eval__suites=suites)))


def test_an_unknown_suite_is_refused_before_data_are_prepared(folder, tmp_path):
    values = SMALL | {
        "data__source": f"text:{folder / 'corpus.txt'}",
        "data__vocab": str(folder / "vocab.txt"),
        "eval__suites": ("blimb",),
    }
    with pytest.raises(UserError, match="blimb is neither a file or folder nor a suite"):
        bert_jax.train(bert_jax.get_config("tiny", **values), tmp_path / "run")
    assert not (tmp_path / "run" / "data").exists()


def test_suites_need_evaluations(folder):
    values = {"eval__suites": (str(folder / "order.jsonl"),), "data__validation_share": 0.0}
    with pytest.raises(UserError, match="suites: nothing is held out, so there are no evaluations"):
        check_suites(parse(bert_jax.get_config("tiny", **values)))
    check_suites(parse(bert_jax.get_config("tiny", **values, data__held_out="text:b.txt")))
