"""transformers' Trainer with the defaults of its arguments, for the comparison of defaults."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import transformers

from benchmarks.rivals.finetune_torch_tasks import open_task


def build(config: dict[str, Any], seeds: Sequence[int]) -> Callable[[], dict[str, float]]:
    """Each measurement is a run with the next of the seeds.

    Args:
      config: a configuration of this program, which names the files, the columns and the lengths.
      seeds: seed of each run.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    left = iter(seeds)
    return lambda: {"score": _run(config, next(left))}


def _run(config: dict[str, Any], seed: int) -> float:
    transformers.set_seed(seed)
    task, tokenizer, model, train, held_out = open_task(config)
    rows, _ = task.encode(train)
    held_out_rows, plan = task.encode(held_out)
    with tempfile.TemporaryDirectory() as output:
        arguments = transformers.TrainingArguments(
            output_dir=output, seed=seed, save_strategy="no", report_to="none", disable_tqdm=True
        )
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=rows,  # pyright: ignore
            data_collator=task.collator_class(tokenizer),
        )
        trainer.train()
        outputs = trainer.predict(held_out_rows).predictions  # pyright: ignore
    return task.score(_rows(outputs, config["task"]), held_out, plan)


def _rows(outputs: Any, task: str) -> Iterator[dict[str, np.ndarray]]:
    """Yields the outputs of each row by name."""
    parts = outputs if isinstance(outputs, tuple) else (outputs,)
    names = ("start_logits", "end_logits") if len(parts) == 2 else ("logits",)
    for arrays in zip(*parts, strict=True):
        yield dict(zip(names, arrays, strict=True))
