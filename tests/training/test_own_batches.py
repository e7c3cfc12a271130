"""Pre-training on a function of the step."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax.api import resolve
from bert_jax.files.errors import UserError
from bert_jax.training.listener import Listener
from tests import tiny
from tests.test_api import SIZES, VOCABULARY, files, make_config  # noqa: F401


def batches(step: int) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(step).integers(len(tiny.SPECIAL), len(VOCABULARY), (16, 16))
    mask = np.ones_like(ids)
    ids[:4, 10:], mask[:4, 10:] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


MASKS = np.ones((16, 16))


def train(files, workdir, make=batches, **values):  # noqa: F811
    values = {"model__next_sentence": False, "checkpoint__every": "3", "log__every": "1"} | values
    config = make_config(files, **values)
    return bert_jax.train(config, workdir, batches=make, listener=Listener())


def losses(workdir) -> list[dict]:
    rows = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [{name: row[name] for name in row if name != "speed"} for row in rows]


def test_a_stopped_run_resumes_exactly(files, tmp_path):  # noqa: F811
    whole = train(files, tmp_path / "whole")
    assert np.isfinite(whole.history["loss"]).all()

    def stopping(step):
        if step == 5:
            raise KeyboardInterrupt
        return batches(step)

    with pytest.raises(KeyboardInterrupt):
        train(files, tmp_path / "stopped", stopping)
    train(files, tmp_path / "stopped")
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")
    with pytest.raises(UserError, match="data: "):
        train(files, tmp_path / "stopped", lambda step: batches(step + 1))
    with pytest.raises(UserError, match="batches of a function, which is not stored"):
        bert_jax.train(whole.config, tmp_path / "whole")


@pytest.mark.parametrize(
    ("make", "values", "message"),
    [
        (iter([]), {}, "is not a function of the step: an iterator cannot resume exactly"),
        (lambda step: 3, {}, "batches(0) is of type int"),
        (lambda step: {"ids": np.zeros((16, 16))}, {}, "input_ids of shape [0]"),
        (lambda step: {"input_ids": np.zeros((16, 16))}, {}, "float64: return int32[16, 16]"),
        (lambda step: {"input_ids": np.full((16, 16), 99)}, {}, "from 99 to 99"),
        (lambda step: batches(step) | {"token_type_ids": np.zeros(3)}, {}, "have not 16 rows"),
        (lambda step: batches(step) | {"attention_masks": MASKS}, {}, "did you mean"),
        (batches, {"model__next_sentence": True}, "lack next_sentence_labels"),
        (batches, {"data__vocab": "train:wordpiece"}, "there is no text to train one on"),
        (batches, {"init_embeddings": "spectral"}, "needs a corpus, and this run trains on"),
    ],
)
def test_what_is_refused(make, values, message, files, tmp_path):  # noqa: F811
    with pytest.raises(UserError) as error:
        train(files, tmp_path / "run", make, **values)
    assert message in str(error.value)


def test_a_function_has_no_epochs(files, tmp_path):  # noqa: F811
    config = resolve(make_config(files), "").replace({"epochs": 1.0})
    with pytest.raises(UserError, match="have no epochs"):
        bert_jax.train(config, tmp_path / "run", batches=batches)
