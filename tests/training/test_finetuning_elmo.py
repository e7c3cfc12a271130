"""A tagger on an imported ELMo: frozen, all layers mixed, one piece for each word."""

from collections import Counter

import numpy as np
import pytest

from bert_jax.config import defaults
from bert_jax.data.init_from import resolve
from bert_jax.inference.loading import load_workdir
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.tools.convert.conversions import convert
from bert_jax.training.train import train
from bert_jax.training.workdir import open_model
from tests.tiny import PRNG_IMPL
from tests.tools.convert.bilm_folder import write_folder

SENTENCES = (
    (("Ann", "B-PER"), ("met", "O"), ("U.S.", "B-LOC"), ("cats", "O")),
    (("Bob", "B-PER"), ("sat", "O")),
    (("cats", "O"), ("met", "O"), ("Ann", "B-PER")),
    (("Paris", "B-LOC"), ("sat", "O")),
)


def write_conll(path):
    lines = ("".join(f"{word} {tag}\n" for word, tag in words) for words in SENTENCES)
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Configuration and workdir of a tagger that was trained on 8 devices, and its source."""
    folder = tmp_path_factory.mktemp("elmo")
    convert(str(write_folder(folder / "bilm")), str(folder / "elmo"))
    config = defaults.tagging()
    data = write_conll(folder / "train.conll")
    config = config.replace(
        {
            "init_from": str(folder / "elmo"),
            "data.train": data,
            "data.eval": data,
            "data.bucket_lengths": (8,),
            "max_length": 8,
            "data.batch_by": "rows",
            "global_batch_size": 8,
            "epochs": 3.0,
            "optimizer.warmup": "0",
            "checkpoint.use": "newest",
            "prng_impl": PRNG_IMPL,
        }
    )
    # A BiLSTM would take longest to compile.
    config = resolve(config.to_dict(), ("head.tagging",), str(folder / "run"))
    train(config, str(folder / "run"))
    return config, folder


def test_the_encoder_stays_and_the_mix_of_its_layers_is_trained(run):
    config, folder = run
    assert config.model.name == "elmo" and config.optimizer.frozen_layers == -1
    before = open_model(str(folder / "elmo")).params
    after = open_model(str(folder / "run")).params
    encoder = [name for name in after if name.startswith("elmo/")]
    assert encoder and all(np.array_equal(before[name], after[name]) for name in encoder)
    assert after["scalar_mix/weights"].shape == (3,) and after["scalar_mix/weights"].any()


def test_words_that_training_never_saw_are_read(run):
    config, folder = run
    model = load_workdir(config, str(folder / "run"))
    predictor = TaskPredictor(Predictor(model))
    (folder / "new.conll").write_text("Unseen\nwords-here\n.\n")
    examples = list(predictor.data.read(str(folder / "new.conll"), Counter(), labelled=False))
    ((prediction,),) = predictor.predict(examples)
    assert prediction["words"] == ["Unseen", "words-here", "."] and len(prediction["tags"]) == 3
    assert {"Unseen", "words-here"} <= set(model.tokenizer.pieces)
