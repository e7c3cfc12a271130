"""The files that the GLUE server takes."""

import math
import os
from collections.abc import Iterable

from bert_jax.examples.text_tasks import TextTask, number_of
from bert_jax.files.atomic import whole_file


def write_submission(
    folder: str, task: TextTask, split: str, predictions: Iterable[tuple[str, str]]
) -> str:
    """Writes the file that the GLUE server takes: a header, then id and prediction of each row.

    Args:
      predictions: (id, label or, for a regression, number as text) in the file's order. Numbers are
        clipped to the task's limits and written with 3 decimals.

    Returns:
      The path of the file.

    Raises:
      ValueError: nothing is handed in for that split, or an id comes twice, or a label is unknown.
    """
    if split not in task.submissions:
        raise ValueError(
            f"Nothing is handed in for {split!r} but {', '.join(task.submissions) or 'nothing'}."
        )
    # GLUE wants labels as its training files write them: by number where these have numbers.
    written = {label: alias for alias, label in task.aliases.items()}
    path, seen = os.path.join(folder, task.submissions[split]), set()
    with whole_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write("index\tprediction\n")
        for id, prediction in predictions:
            if id in seen:
                raise ValueError(
                    f"The id {id!r} has two predictions for {task.submissions[split]}."
                )
            seen.add(id)
            if task.limits is not None:
                low, high = task.limits
                prediction = f"{min(max(_finite(prediction, id), low), high):.3f}"
            elif prediction not in task.labels:
                raise ValueError(f"The id {id!r} has the unknown label {prediction!r}.")
            file.write(f"{id}\t{written.get(prediction, prediction)}\n")
    return path


def _finite(prediction: str, id: str) -> float:
    if not math.isfinite(number := number_of(prediction)):
        raise ValueError(f"The id {id!r} has {prediction!r}, which is no number.")
    return number
