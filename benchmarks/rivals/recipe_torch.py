"""transformers' Trainer in the race of recipes: the same rows, the same held-out masks.

The reference is a workdir of this program: its rows are trained on, in their order, its sizes are
those of the model, and its masks are the held-out ones. Masks to train on are those of
transformers' data collator.
"""

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import tokenizers
import torch
import transformers

from bert_jax.config import store
from bert_jax.data.batch import Batch
from bert_jax.files.atomic import write_text
from bert_jax.text.tokenization import count_characters
from bert_jax.training.evaluate import evaluated_batches, evaluation_batch_size
from bert_jax.training.open import open_run
from bert_jax.training.run import Run

MODELS = {
    "bert": (transformers.BertConfig, transformers.BertForMaskedLM),
    "modernbert": (transformers.ModernBertConfig, transformers.ModernBertForMaskedLM),
}


class TrainingRows(torch.utils.data.IterableDataset):
    """The rows of a run in their order, without masks, without end."""

    def __init__(self, run: Run):
        self._rows, self._size = run.training[0], run.phases[0].batch_size
        tokenizer = run.tokenizer
        self._special = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for number in itertools.count():
            batch = self._rows.batch(number, 0, self._size)
            is_special = np.isin(batch["input_ids"], self._special)
            for row in range(self._size):
                yield {
                    "input_ids": batch["input_ids"][row].astype(np.int64),
                    "attention_mask": (batch["example_ids"][row] > 0).astype(np.int64),
                    "special_tokens_mask": is_special[row].astype(np.int64),
                }


def held_out_batches(run: Run) -> list[Batch]:
    """Returns masked batches of the held-out split, as this program evaluates them."""
    phase = run.phases[0]
    task, key = run.task_at(phase, evaluate=True), run.key("eval_masking")
    transform = jax.jit(
        lambda number, batch: task.transform(jax.random.fold_in(key, number), batch)
    )
    rows = run.evaluation_rows(phase)[0]
    size = evaluation_batch_size(run.config, phase)
    batches = evaluated_batches(run.config, rows, size)
    return [jax.device_get(transform(number, batch.read(0, size))) for number, batch in batches]


class Evaluations(transformers.TrainerCallback):
    """Evaluates every so many steps; the clock of training stands still meanwhile."""

    def __init__(self, path: str, every: int, steps: int, run: Run, row_tokens: int):
        self._path, self._every, self._steps = path, every, steps
        self._batches, self._row_tokens = held_out_batches(run), row_tokens
        self._characters = np.array(count_characters(run.tokenizer.pieces))
        self._lines: list[str] = []
        self._seconds, self._since = 0.0, 0.0

    def on_train_begin(self, args, state, control, **_):
        self._since = time.perf_counter()

    def on_step_end(self, args, state, control, model=None, **_):
        step = state.global_step
        if step % self._every and step != self._steps:
            return
        self._seconds += time.perf_counter() - self._since
        speed = {"seconds": self._seconds, "tokens": step * self._row_tokens}
        values = evaluate(model, self._batches, self._characters)
        line = {"step": step, "split": "validation", **values, "speed": speed}
        self._lines.append(json.dumps(line) + "\n")
        write_text(self._path, "".join(self._lines))
        self._since = time.perf_counter()


@torch.no_grad()
def evaluate(model: Any, batches: list[Batch], characters: np.ndarray) -> dict[str, float]:
    """Returns mean loss in nats, accuracy and bits per character of the masked tokens.

    Args:
      model: a masked language model.
      batches: result of `held_out_batches`.
      characters: int[vocabulary], the number of characters of each token.
    """
    model.eval()
    loss = hits = count = length = 0.0
    for batch in batches:
        as_tensor = lambda name: torch.tensor(np.asarray(batch[name])).long().to(model.device)  # noqa: B023, E731
        logits = model(
            input_ids=as_tensor("input_ids"), attention_mask=(as_tensor("example_ids") > 0).long()
        ).logits
        rows, slots = torch.nonzero(as_tensor("masked_lm_weights"), as_tuple=True)
        chosen = logits[rows, as_tensor("masked_lm_positions")[rows, slots]].float()
        ids = as_tensor("masked_lm_ids")[rows, slots]
        loss += float(torch.nn.functional.cross_entropy(chosen, ids, reduction="sum"))
        hits += float((chosen.argmax(-1) == ids).sum())
        count += len(ids)
        length += float(characters[ids.cpu().numpy()].sum())
    model.train()
    return {
        "masked_lm_loss": loss / count,
        "masked_lm_accuracy": hits / count,
        "masked_lm_bits_per_character": loss / np.log(2) / length,
    }


def make_tokenizer(run: Run) -> Any:
    """Returns what the collator needs: the ids of the special tokens, and the vocabulary's size."""
    pieces, tokenizer = run.tokenizer.pieces, run.tokenizer
    names = ("pad", "cls", "sep", "mask", "unk")
    special = {f"{name}_token": pieces[getattr(tokenizer, f"{name}_id")] for name in names}
    core = tokenizers.models.WordLevel({piece: i for i, piece in enumerate(pieces)}, pieces[0])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(core), **special
    )


def make_model(name: str, run: Run) -> Any:
    """Returns the model of transformers with the sizes of the reference, and its own defaults."""
    config_class, model_class = MODELS[name]
    tokenizer, sizes = run.tokenizer, run.config.model
    values = {
        "vocab_size": len(tokenizer.pieces),
        "hidden_size": sizes.hidden_size,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": run.config["model.num_heads"],
        "intermediate_size": run.config["model.intermediate_size"],
        "max_position_embeddings": sizes.max_position_embeddings,
        "pad_token_id": tokenizer.pad_id,
        "cls_token_id": tokenizer.cls_id,
        "sep_token_id": tokenizer.sep_id,
        "bos_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.sep_id,
    }
    return model_class(config_class(**values))


def build(
    reference: str,
    workdir: str,
    model: str,
    steps: int,
    every: int,
    seed: int,
    eval_batches: int | None,
    arguments: Mapping[str, Any],
) -> Callable[[], dict[str, Any]]:
    """Prepares a run, which the measurement does; evaluations are written to metrics.jsonl.

    Args:
      reference: workdir with one phase, one example a row, and held-out text.
      workdir: folder of the run.
      model: a row of MODELS.
      steps: steps; `every` so many of them an evaluation.
      seed: seed of weights, dropout and masks.
      eval_batches: batches of each evaluation; 0: all, None: those of the reference.
      arguments: TrainingArguments, with `mlm_probability` and `tail` as `recipe` describes them.
    """
    jax.config.update("jax_platforms", "cpu")  # it only draws masks: the accelerator is torch's
    config = store.load(reference).replace({"seed": seed})
    if eval_batches is not None:
        config = config.replace({"eval.max_batches": eval_batches})
    run, arguments = open_run(config, reference), dict(arguments)
    collator = transformers.DataCollatorForLanguageModeling(
        make_tokenizer(run), mlm_probability=arguments.pop("mlm_probability", 0.15)
    )
    if tail := arguments.pop("tail", 0.0):
        arguments["lr_scheduler_type"] = "warmup_stable_decay"
        arguments["lr_scheduler_kwargs"] = {"num_decay_steps": round(tail * steps)}
    options = transformers.TrainingArguments(
        **{
            "output_dir": os.path.join(workdir, "trainer"),
            "max_steps": steps,
            "seed": seed,
            "report_to": "none",
            "save_strategy": "no",
            "logging_strategy": "no",
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            **arguments,
        }
    )
    row_tokens = options.per_device_train_batch_size * run.phases[0].sequence_length
    path = os.path.join(workdir, "metrics.jsonl")
    transformers.set_seed(seed)
    trainer = transformers.Trainer(
        make_model(model, run),
        options,
        collator,
        TrainingRows(run),
        callbacks=[Evaluations(path, every, steps, run, row_tokens)],
    )

    def measure() -> dict[str, Any]:
        trainer.train()
        return {}

    return measure
