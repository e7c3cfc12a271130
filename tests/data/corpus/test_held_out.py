"""Another text to evaluate on, in place of a part of the corpus."""

import dataclasses
import pathlib
import random

import numpy as np
import pytest

from bert_jax.config.data import DataConfig
from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import held_out_split, prepare, prepare_all
from bert_jax.files.errors import UserError
from tests.tiny import SPECIAL

WORDS = "moon river stone tree cloud leaf sand hill".split()


def write(path, count, seed):
    rng = random.Random(seed)
    lines = (" ".join(rng.choices(WORDS, k=6)) for _ in range(count))
    path.write_text("\n\n".join(lines))
    return f"text:{path}"


def test_the_other_text_is_held_out_whole_and_alone(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    config = DataConfig(
        source=write(tmp_path / "a.txt", 40, 0),
        held_out=write(tmp_path / "b.txt", 20, 1),
        validation_share=0.0,
        vocab=str(tmp_path / "vocab.txt"),
        vocab_size=64,
        sequence_lengths=(16,),
        num_predictions=(2,),
        segments="full_sentences",
        num_processes=1,
    )
    prepare_all(config, str(tmp_path / "both"), lambda line: None)
    manifest = Manifest.load(str(tmp_path / "both"))
    found = held_out_split(config, manifest)
    assert found is not None and "validation" not in manifest.splits
    for rows, source in (
        (CorpusRows(manifest, "train", 16), config.source),
        (CorpusRows(*found, 16), config.held_out),
    ):
        alone = dataclasses.replace(config, source=source, held_out="")
        folder = str(tmp_path / source[-5])
        expected = CorpusRows(prepare(alone, folder, 1, lambda line: None), "train", 16)
        assert rows.rows_per_epoch == expected.rows_per_epoch
        for ours, theirs in zip(
            rows.evaluation_batches(8), expected.evaluation_batches(8), strict=True
        ):
            np.testing.assert_array_equal(
                ours.read(0, 8)["input_ids"], theirs.read(0, 8)["input_ids"]
            )


def test_a_part_and_another_text_exclude_each_other():
    with pytest.raises(UserError, match="held_out='text:b.txt' and config.data.validation_share="):
        DataConfig(held_out="text:b.txt")


@pytest.mark.parametrize("separator, is_reported", [("blank_line", True), ("line", False)])
def test_a_share_far_above_the_one_that_was_asked_for_is_reported(tmp_path, separator, is_reported):
    """Files without blank lines are one document each, and two of them are held out."""
    for name in "abcd":
        lines = pathlib.Path(write(tmp_path / f"{name}.txt", 40, ord(name)).removeprefix("text:"))
        lines.write_text(lines.read_text().replace("\n\n", "\n"))
    config = DataConfig(
        source=f"text:{tmp_path}/?.txt",
        document_separator=separator,
        vocab="train:words",
        vocab_size=64,
        sequence_lengths=(16,),
        num_predictions=(2,),
        segments="full_sentences",
        num_processes=1,
    )
    log = []
    prepare(config, str(tmp_path / "data"), 1, log.append)
    found = [line for line in log if line.startswith("held out: ")]
    assert len(found) == is_reported
    if is_reported:
        assert found[0].startswith(
            "held out: 50% of the tokens, although data.validation_share=0.01"
        )
        assert "2 of 4" in found[0]
