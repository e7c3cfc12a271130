"""Export to ONNX, and to int8 with a gate: an export that is much worse than float32 is refused."""

import bisect
import dataclasses
import functools
import os
import pathlib
from typing import Any

from bert_jax.exchange import check_onnx, check_output_folder, export
from bert_jax.files.atomic import whole_folder, write_json
from bert_jax.files.errors import UserError
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import decide
from bert_jax.inference.loading import TrainedModel


def export_onnx(
    model: TrainedModel,
    folder: str | os.PathLike,
    output: str = "",
    int8: bool = False,
    evaluate: str | os.PathLike = "",
    max_loss: float = 0.01,
) -> dict[str, Any]:
    """Writes a model as ONNX into a new folder, completely or not at all.

    Args:
      output: "task", the logits of the model's head, or "vectors" of tokens and texts; "": the
        former, if the head is trained.
      int8: whether products with kernels are computed in int8.
      evaluate: file that int8 and float32 are compared on: labelled examples for a fine-tuned
        head, otherwise texts.
      max_loss: the largest accepted loss in the task's first metric, or difference between 1 and
        the mean cosine.

    Returns:
      The content of model.json; with int8 also the comparison.

    Raises:
      UserError: the folder is not empty; a part of the model has no ONNX translation; a package is
        missing; or int8 is worse than `max_loss` allows.
    """
    if int8 != bool(evaluate):
        raise UserError(
            "int8 and evaluate=FILE go together: int8 is compared with float32 on the file."
        )
    check_onnx("onnx", *(["onnxruntime"] if int8 else []))
    check_output_folder(folder)
    choice, max_length = decide(Choice(level="sentence"), model)
    loaded = model.stored()
    vectors = dataclasses.replace(
        loaded.sentence_vectors, pooling=choice.pooling, normalize=bool(choice.normalize)
    )
    with whole_folder(folder) as temporary:
        choices = {"output": output, "vectors": vectors}
        facts = export(loaded, "onnx", temporary, **choices)
        if int8:
            found = _quantize(model, temporary, facts["output"], evaluate, max_length, max_loss)
            facts["int8"] = found
            write_json(os.path.join(temporary, "model.json"), facts)
    return facts


def _quantize(
    model: TrainedModel,
    folder: str,
    output: str,
    evaluate: str | os.PathLike,
    max_length: int,
    max_loss: float,
) -> dict[str, Any]:
    """Replaces the graph with its int8 version, and returns how the two compare.

    If int8 loses too much, the most sensitive products stay in float32: as few as needed, and at
    most half of them. The sensitivity of a product is the squared difference of the outputs when it
    alone is computed in int8.
    """
    import onnx  # from the extra `onnx`, like the modules below

    from bert_jax.exchange.onnx.int8 import products, quantize
    from bert_jax.exchange.onnx.write import FILE
    from bert_jax.inference.onnx_measure import Comparison

    path = os.path.join(folder, FILE)
    graph = onnx.load(path)
    comparison = Comparison(model, path, output, os.fspath(evaluate), max_length)
    order = products(graph)

    @functools.cache
    def without(count: int) -> tuple[bytes, Any]:
        """Returns the graph with the first `count` products left in float32, and its result."""
        made = quantize(graph, order[count:]).SerializeToString()
        return made, comparison.compare(made)

    most, left_out = len(order) // 2, 0
    if without(0)[1].loss > max_loss:
        order.sort(key=lambda name: -comparison.error(quantize(graph, [name]).SerializeToString()))
        left_out = 1 + bisect.bisect_left(
            range(1, most), True, key=lambda count: without(count)[1].loss <= max_loss
        )
    made, result = without(left_out)
    if result.loss > max_loss:
        raise UserError(
            f"int8 loses too much on {evaluate}: {result.name} {result.int8:.4f} instead of"
            f" {result.float32:.4f}, more than max_loss={max_loss} allows, even with {left_out} of"
            f" {len(order)} products in float32. Export float32, or allow more with max_loss."
        )
    pathlib.Path(path).write_bytes(made)
    return {
        "evaluated_on": os.fspath(evaluate),
        "metric": result.name,
        "float32": result.float32,
        "int8": result.int8,
        **({} if result.least is None else {"least": result.least}),
        "products": len(order),
        "products_in_float32": order[:left_out],
    }
