"""Static instances, against hashes of what the released program makes of the same text."""

import hashlib
import json
import random
from collections import Counter

import numpy as np
import pytest

from bert_jax.config.data import DataConfig
from bert_jax.corpus import dump
from bert_jax.corpus.blocks import RowFormat
from bert_jax.corpus.documents import Documents, join_chunks, split_documents, tokenize_chunk
from bert_jax.corpus.prepare import prepare
from bert_jax.corpus.shards import ShardRows, write_shard
from bert_jax.corpus.static_instances import (
    KEEP,
    StaticMasking,
    draw_masks,
    instance_dtype,
    write_instances,
)
from bert_jax.text.tokenizers import load_tokenizer

SYLLABLES = [c + v for c in "bdfgklmn" for v in "aeiou"]
# One line twice: of equal lines the last one's id counts, and random words are drawn once for both.
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *SYLLABLES[:30], "ba", "."),
    *(f"##{syllable}" for syllable in SYLLABLES[:36]),
]


def make_corpus(num_documents: int) -> list[list[str]]:
    """Documents of sentences of made-up words; the last syllables are unknown to the vocabulary."""
    rng = random.Random(num_documents)

    def sentence() -> str:
        words = ["".join(rng.choices(SYLLABLES, k=rng.choice((1, 1, 2, 3)))) for _ in range(12)]
        return " ".join(words[: rng.randint(1, 12)]) + "."

    return [[sentence() for _ in range(rng.randint(1, 30))] for _ in range(num_documents)]


# SHA-256 (its start) of the JSON of all instances in order, each as [ids, segment ids, masked
# positions, ids of the labels, is_random_next]. They were made by google-research/bert's
# create_pretraining_data.py (commit eedf571, unchanged, with a stub for the tensorflow module):
# create_training_instances over a file of these documents (a sentence a line, a blank line between
# documents) with FullTokenizer over VOCABULARY, short_seq_prob 0.1, masked_lm_prob 0.15,
# round(0.15 * length) + 1 predictions and random.Random(seed).
#   (documents, seed, dupe_factor, whole words, sequence length): (instances, hash)
RELEASED = {
    (12, 12345, 1, False, 128): (43, "e994a2e8662a9b9b"),
    (12, 12345, 3, True, 128): (80, "52ad887036e6e5d9"),
    (12, 7, 5, False, 64): (225, "03489cbcad0e47dc"),
    (12, 7, 10, True, 64): (401, "b33749a4f89f26cd"),
    (12, 1, 2, False, 512): (53, "c4b504fbedc07c9d"),
    (12, 1, 2, True, 512): (49, "1d4b513be60ab046"),
    (2, 12345, 10, False, 32): (157, "19a5564815c7696a"),
    (2, 12345, 10, True, 32): (171, "2ad172f019c611f5"),
    (40, 99, 4, False, 24): (1554, "dd77d967eb9291b5"),
}


class Corpus:
    def __init__(self, documents: list[list[str]]):
        self.documents = documents

    def read(self, chunk: None, counts: Counter) -> list[list[str]]:
        return self.documents


def write_corpus(folder, num_documents: int):
    """Tokenizes a made-up corpus; all of it is in the split `train`."""
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(VOCABULARY) + "\n")
    tokenizer = load_tokenizer(str(vocabulary), lowercase=True)
    corpus, chunk = str(folder / "corpus"), str(folder / "chunk")
    tokenize_chunk(Corpus(make_corpus(num_documents)), None, tokenizer, b"key", chunk)
    join_chunks([chunk], corpus)
    split_documents(corpus, share=0.0)
    return tokenizer, corpus


def digest(instances: list) -> str:
    return hashlib.sha256(json.dumps(instances).encode()).hexdigest()[:16]


@pytest.mark.parametrize("case", RELEASED, ids=str)
def test_instances_are_those_of_the_released_program(case, tmp_path):
    num_documents, seed, dupe_factor, whole_words, length = case
    tokenizer, corpus = write_corpus(tmp_path, num_documents)
    form = RowFormat(
        sequence_length=length,
        examples_per_row=1,
        max_predictions=round(0.15 * length) + 1,
        vocab_size=len(tokenizer.pieces),
        pad_id=tokenizer.pad_id,
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
    )
    masking = StaticMasking(
        masked_lm_prob=0.15,
        max_predictions=form.max_predictions,
        mask_id=tokenizer.mask_id,
        random_words=tokenizer.random_words.tolist(),
        is_continuation=tokenizer.is_continuation if whole_words else None,
    )
    documents = Documents(corpus, "train", form.id_dtype)
    records, shard = str(tmp_path / "records"), str(tmp_path / "shard")
    count = write_instances(
        documents, records, seed, dupe_factor, length - 3, 0.1, masking, form.id_dtype
    )
    dtype = instance_dtype(form.max_predictions)
    facts = write_shard(documents, records, dtype, (0, count), form, shard)
    batch = ShardRows([shard], [facts["rows"]], form).read(np.arange(count))

    instances = []
    for row in range(count):
        is_token, is_mask = batch["example_ids"][row] == 1, batch["masked_lm_weights"][row] == 1
        instances.append(
            [
                batch["input_ids"][row][is_token].tolist(),
                batch["token_type_ids"][row][is_token].tolist(),
                batch["masked_lm_positions"][row][is_mask].tolist(),
                batch["masked_lm_ids"][row][is_mask].tolist(),
                int(batch["next_sentence_labels"][row, 0]),
            ]
        )
    assert (count, digest(instances)) == RELEASED[case]


def test_the_whole_preparation_gives_them_too(tmp_path):
    """From a file of text to the records, with no split held out."""
    num_documents, seed, dupe_factor, whole_words, length = case = (12, 7, 10, True, 64)
    text = "\n\n".join("\n".join(document) for document in make_corpus(num_documents))
    (tmp_path / "text.txt").write_text(text + "\n")
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    config = DataConfig(
        source=f"text:{tmp_path}/text.txt",
        form="sentences",
        document="blank_line",
        field="text",
        language="en",
        on_bad_text="error",
        vocab=str(tmp_path / "vocab.txt"),
        vocab_size=len(VOCABULARY),
        lowercase=True,
        segments="pairs",
        mode="static",
        seed=seed,
        dupe_factor=dupe_factor,
        short_seq_prob=0.1,
        masked_lm_prob=0.15,
        masking="whole_word" if whole_words else "subword",
        mask_rounding="half_even",
        validation_share=0.0,
        # Each length is a run of its own, with the same seed.
        sequence_lengths=(32, length),
        max_predictions_per_seq=(6, round(0.15 * length) + 1),
    )
    manifest = prepare(config, str(tmp_path / "data"), num_processes=1)
    instances = []
    for example in dump.examples(manifest, "train", length):
        num_tokens, num_masked = sum(example["input_mask"]), int(sum(example["masked_lm_weights"]))
        counts = {"input_ids": num_tokens, "segment_ids": num_tokens}
        counts |= {"masked_lm_positions": num_masked, "masked_lm_ids": num_masked}
        fields = [example[name][:count] for name, count in counts.items()]
        instances.append([*fields, *example["next_sentence_labels"]])
    assert (len(instances), digest(instances)) == RELEASED[case]


def masking(**changes) -> StaticMasking:
    values = {"masked_lm_prob": 0.15, "max_predictions": 20, "mask_id": 4}
    return StaticMasking(**values | {"random_words": range(50), "is_continuation": None} | changes)


def test_masks_are_15_percent_of_them_80_10_10():
    rng = random.Random(0)
    drawn = [draw_masks(60, 65, None, rng, masking()) for _ in range(2000)]
    assert {len(masks) for masks in drawn} == {19}  # round(128 * 0.15)
    positions = {position for masks in drawn for position, _ in masks}
    assert positions == set(range(1, 61)) | set(range(62, 127))  # never [CLS] or [SEP]
    replacements = Counter(id for masks in drawn for _, id in masks)
    total = 2000 * 19
    assert replacements[KEEP] / total == pytest.approx(0.1, abs=0.01)
    # A random word may be [MASK] too: one in fifty.
    assert replacements[4] / total == pytest.approx(0.8 + 0.1 / 50, abs=0.01)


@pytest.mark.parametrize(("length", "expected"), [(5, 1), (30, 4), (50, 8), (70, 10), (512, 20)])
def test_number_of_masks_rounds_half_to_even_and_has_bounds(length, expected):
    assert len(draw_masks(length - 4, 1, None, random.Random(0), masking())) == expected


def test_words_are_masked_whole_or_not_at_all():
    rng = random.Random(1)
    words = [[1, 2], [3], [4, 5, 6], [8], [9, 10]]
    continues = [position in (2, 5, 6, 10) for position in range(12)]
    for _ in range(200):
        rule = masking(masked_lm_prob=0.5)
        masks = draw_masks(6, 3, continues, rng, rule)
        positions = [position for position, _ in masks]
        assert positions == sorted(positions)
        assert len(positions) <= 6
        assert all(len(set(word) & set(positions)) in (0, len(word)) for word in words)
