"""Recomputes the embeddings that bilm-tf computed for its own test sentences."""

import json
import os
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from bert_jax.devices.trees import unflatten
from bert_jax.exchange import LoadedModel
from bert_jax.files.errors import UserError
from bert_jax.formats.bilm import REFERENCES, SENTENCES, read_hdf5
from bert_jax.models import make_add_fields, make_encoder
from bert_jax.text.word_tokenizer import WordTokenizer


def compare(loaded: LoadedModel) -> dict[str, Any]:
    """Compares the last layer of both directions with the reference files in the folder.

    Batch n has sentence n of each list, and starts from the states that the batch before it ended
    with. Words are separated by spaces.
    """
    assert loaded.checkpoint
    folder = loaded.checkpoint.path
    paths = (os.path.join(folder, name) for name in SENTENCES)
    path = next(filter(os.path.isfile, paths), "")
    references = [os.path.join(folder, REFERENCES.format(0))]
    if not path or not os.path.isfile(references[0]):
        return {"none_because": f"{folder} has no {REFERENCES.format('N')} with {SENTENCES[0]}"}
    with open(path, encoding="utf-8") as file:
        lists = json.load(file)
    references = [os.path.join(folder, REFERENCES.format(n)) for n in range(len(lists))]
    expected = [read_hdf5(reference) for reference in references]
    largest, count = 0.0, 0
    for number, outputs in enumerate(last_layers(loaded, list(zip(*lists, strict=True)))):
        for place, found in enumerate(outputs):
            reference = expected[place].get(str(number))
            if reference is None or reference.shape != found.shape:
                raise UserError(
                    f"{references[place]} has no embeddings {list(found.shape)} of sentence"
                    f" {number} in {path}: the files do not belong together."
                )
            largest, count = max(largest, float(np.abs(found - reference).max())), count + 1
    return {
        "with": f"{count} sentences of {os.path.basename(path)}, states carried",
        "largest_difference": {"last layer": largest},
    }


def last_layers(loaded: LoadedModel, batches: list[tuple[str, ...]]) -> Iterator[list[np.ndarray]]:
    """Yields float32[2, words, features] for each sentence of a batch, forward and backward.

    Args:
      loaded: the model.
      batches: tokenized sentences; all batches have the same number.
    """
    config, tokenizer = loaded.model, loaded.tokenizer
    assert isinstance(tokenizer, WordTokenizer)
    encoder = make_encoder(config)
    params = {"params": unflatten(loaded.params)[config.name]}
    add_fields = make_add_fields(config, tokenizer)
    step = jax.jit(
        lambda params, batch, carry: encoder.apply(
            params, batch, carry, True, method="language_model"
        )
    )
    carry = encoder.init_carry(len(batches[0]))  # pyright: ignore[reportAttributeAccessIssue]
    longest = max(len(text.split()) for batch in batches for text in batch) + 2
    for texts in batches:
        rows = [_ids(text, tokenizer) for text in texts]
        is_token = np.arange(longest) < np.array([len(row) for row in rows])[:, None]
        batch = {"example_ids": is_token.astype(np.int32)}
        for name, order in (("input_ids", 1), ("reverse_ids", -1)):
            ids = np.full(is_token.shape, tokenizer.pad_id, np.int32)
            for row, numbers in zip(ids, rows, strict=True):
                row[: len(numbers)] = numbers[::order]
            batch[name] = ids
        forward, backward, carry = step(params, add_fields(batch), carry)
        yield [
            np.stack([forward[i, 1 : size - 1], np.asarray(backward[i, :size])[::-1][1:-1]])
            for i, size in enumerate(map(len, rows))
        ]


def _ids(text: str, tokenizer: WordTokenizer) -> list[int]:
    words = [index for word in text.split() for index in tokenizer.encode_word(word)]
    return [tokenizer.cls_id, *words, tokenizer.sep_id]
