"""Writes the sparse vectors of texts to a file."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from scipy import sparse

from bert_jax.files.atomic import whole_file
from bert_jax.files.errors import UserError
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.sparse import named_weights, stack_sparse
from bert_jax.tools.outputs.files import SPARSE, check_output, write_objects
from bert_jax.tools.outputs.inputs import Inputs
from bert_jax.tools.outputs.predictions import Progress
from bert_jax.training.listener import Listener


def extract_sparse(
    extractor: FeatureExtractor, inputs: Inputs, output_path: str, listener: Listener | None = None
) -> int:
    """Writes a weight of each word for each text; the output is complete or absent.

    A .jsonl has a line {"token": weight, ...} for each text, the largest weight first; a .npz is
    what `scipy.sparse.load_npz` reads, float32[texts, vocab_size].

    Returns:
      The number of texts.

    Raises:
      UserError: before long work, for a file that cannot be written or a text that cannot be used.
    """
    ending = check_output(output_path, SPARSE, inputs.paths)
    # Overlong texts are refused before any is computed.
    counts = Counter()
    for row in map(extractor.row, inputs.texts()):
        counts += Counter(texts=1, truncated=int(row.cut > 0), tokens=row.cut)
    if not (texts := counts["texts"]):
        raise UserError(f"{inputs} holds no text: there is nothing to do.")
    progress = Progress(texts, listener)
    if counts["truncated"]:
        progress.line(
            f"truncated  {counts['truncated']:,} of {texts:,} texts: {counts['tokens']:,} tokens"
            " are cut off"
        )
    model = extractor.model

    def vectors() -> Iterator[np.ndarray]:
        rows = map(extractor.row, inputs.texts())
        return (found["embeddings"] for _, found in extractor.run(rows, progress.add))

    if ending == ".jsonl":
        pieces = model.tokenizer.pieces
        write_objects(output_path, (named_weights(vector, pieces) for vector in vectors()))
    else:
        matrix = stack_sparse(vectors(), model.encoder.vocab_size)
        with whole_file(output_path) as temporary, open(temporary, "wb") as file:
            sparse.save_npz(file, matrix)
        progress.line(f"{matrix.nnz / texts:,.1f} words a text")
    progress.finish(texts, f"texts of {inputs} in {output_path}")
    return texts
