"""Writes the features of texts to a file."""

from collections.abc import Iterator

import numpy as np

from bert_jax.data.labelled.texts import TextRow, word_spans
from bert_jax.files.atomic import whole_file
from bert_jax.files.errors import UserError
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.sparse import named_weights, stack_sparse
from bert_jax.tools.outputs.files import (
    ARRAYS,
    SPARSE,
    ArraySpec,
    check_output,
    write_arrays,
    write_objects,
)
from bert_jax.tools.outputs.inputs import Inputs
from bert_jax.tools.outputs.predictions import Progress
from bert_jax.training.listener import Listener


def extract(
    extractor: FeatureExtractor,
    inputs: Inputs,
    output_path: str,
    listener: Listener | None = None,
) -> int:
    """Writes the features of each text; the output is complete or absent.

    For sparse vectors, a .jsonl has a line {"token": weight, ...} for each text, the largest weight
    first; a .npz is what `scipy.sparse.load_npz` reads, float32[texts, vocab_size].

    Returns:
      The number of texts.

    Raises:
      UserError: before long work, for a file that cannot be written, a text that cannot
        be used, or a disk without room.
    """
    model, choice = extractor.model, extractor.choice
    ending = check_output(output_path, SPARSE if choice.sparse else ARRAYS, inputs.paths)

    def rows() -> Iterator[TextRow]:
        return map(extractor.row, inputs.texts())

    # Only these numbers stay in memory: the texts are read again later.
    is_word, tokenizer = choice.level == "word", model.tokenizer
    sizes = np.array(
        [(len(r.input_ids), len(word_spans(r, tokenizer)) if is_word else 0, r.cut) for r in rows()]
    )
    if not len(sizes):
        raise UserError(f"{inputs} holds no text: there is nothing to do.")
    tokens, _, cut = sizes.T
    progress = Progress(len(sizes), listener)
    if cut.any():
        progress.line(
            f"truncated  {np.count_nonzero(cut):,} of {len(cut):,} texts: {cut.sum():,} of"
            f" {(tokens + cut).sum():,} tokens are cut off"
        )
    results = extractor.run(rows(), progress.add)
    if choice.sparse:
        vectors = (found["embeddings"] for _, found in results)
        if ending == ".jsonl":
            write_objects(output_path, (named_weights(v, tokenizer.pieces) for v in vectors))
        else:
            matrix = stack_sparse(vectors, model.encoder.vocab_size)
            from scipy import sparse  # its import adds a warning filter

            with whole_file(output_path) as temporary, open(temporary, "wb") as file:
                sparse.save_npz(file, matrix)
            progress.line(f"{matrix.nnz / len(sizes):,.1f} words per text")
    elif ending in (".jsonl", ".parquet"):
        write_objects(output_path, (extractor.names(row, found) | found for row, found in results))
    else:
        specs = _array_specs(extractor, sizes[:, :2])
        write_arrays(output_path, specs, (found for _, found in results))
        for name, spec in specs.items():
            shape = ", ".join(map(str, spec.shape))
            progress.line(f"{name:<16} {np.dtype(spec.dtype).name}[{shape}]")
    progress.finish(len(sizes), f"texts of {inputs} in {output_path}")
    return len(sizes)


def _array_specs(extractor: FeatureExtractor, sizes: np.ndarray) -> dict[str, ArraySpec]:
    """Returns the arrays for texts whose numbers of tokens and words are int[texts, 2]."""
    model, choice = extractor.model.encoder, extractor.choice
    texts, (tokens, words) = len(sizes), np.maximum(sizes.max(axis=0), 1).tolist()
    layers = {"all": model.num_layers + 1, "directions": 2 * model.num_layers + 1}
    layers = layers.get(str(choice.layers), 1)
    size = {"concat_last_4": 4 * model.hidden_size, "directions": model.hidden_size // 2}
    size = size.get(str(choice.layers), model.hidden_size)
    size = extractor.model.config["task.features"] if choice.multi else size
    specs = {
        "input_ids": ArraySpec((texts, tokens), 0, np.int32),
        "attention_mask": ArraySpec((texts, tokens), 0, np.int32),
    }
    if choice.level == "sentence":
        specs["embeddings"] = ArraySpec((texts, choice.dimensions or size), 0, np.float32)
    else:
        rows = words if choice.level == "word" else tokens
        specs["hidden_states"] = ArraySpec((layers, texts, rows, size), 1, np.float32)
    if choice.level == "word":
        specs["word_spans"] = ArraySpec((texts, words, 2), 0, np.int32)
        specs["word_characters"] = ArraySpec((texts, words, 3), 0, np.int32)
    if extractor.model.has_pooler and not choice.multi:
        specs["pooled"] = ArraySpec((texts, model.hidden_size), 0, np.float32)
    return specs
