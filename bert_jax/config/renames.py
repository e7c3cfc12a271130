"""Other names of configuration fields, for error messages that give ours."""

import difflib
import shlex
from collections.abc import Iterable

# Name in other programs, and habits -> our names; the first that a configuration has is meant.
OTHER_NAMES = {
    "batch_size": ("global_batch_size",),
    "train_batch_size": ("global_batch_size",),
    "per_device_train_batch_size": ("global_batch_size",),
    "eval_batch_size": ("eval.batch_size",),
    "per_device_eval_batch_size": ("eval.batch_size",),
    "gradient_accumulation_steps": ("microbatch_size",),
    "lr": ("optimizer.learning_rate",),
    "warmup_ratio": ("optimizer.warmup",),
    "warmup_steps": ("optimizer.warmup",),
    "warmup_proportion": ("optimizer.warmup",),
    "max_grad_norm": ("optimizer.clip_norm",),
    "max_len": ("max_length", "phases"),
    "max_length": ("max_length", "phases"),
    "phases": ("max_length",),
    "max_seq_length": ("max_length", "phases"),
    "sequence_length": ("max_length", "phases"),
    "num_epochs": ("epochs",),
    "num_train_epochs": ("epochs",),
    "max_steps": ("steps",),
    "num_train_steps": ("steps",),
    "log_every": ("log.every",),
    "logging_steps": ("log.every",),
    "eval_every": ("eval.every",),
    "eval_steps": ("eval.every",),
    "save_every": ("checkpoint.every",),
    "save_steps": ("checkpoint.every",),
    "early_stopping_patience": ("eval.patience",),
    "metric_for_best_model": ("checkpoint.best_metric",),
    "fp16": ("dtype",),
    "bf16": ("dtype",),
    "mixed_precision": ("dtype",),
    "gradient_checkpointing": ("model.remat",),
    "dropout": ("model.dropout_rate",),
    "hidden_dropout_prob": ("model.dropout_rate",),
    "attention_probs_dropout_prob": ("model.attention_dropout_rate",),
    "num_hidden_layers": ("model.num_layers",),
    "num_attention_heads": ("model.num_heads",),
    "mlm_probability": ("data.masked_lm_prob",),
    "text_column": ("task.text_a", "data.field"),
    "sentence1_key": ("task.text_a",),
    "sentence2_key": ("task.text_b",),
    "label_column": ("task.label",),
    "label_column_name": ("task.label",),
    "learning_rate": ("optimizer.learning_rate",),
    "weight_decay": ("optimizer.weight_decay",),
    "max_epochs": ("epochs",),
    "n_epochs": ("epochs",),
    "model_name_or_path": ("init_from",),
    "train_file": ("data.train", "data.source"),
    "validation_file": ("data.eval",),
}
# Values of fields whose form differs from what the other names suggest.
_EXAMPLES = {
    "dtype": "bfloat16",
    "log.every": "100",
    "microbatch_size": "8",
    "optimizer.warmup": "10%",
    "phases": "((128, 1.0),)",
}


def suggestion(name: str, group: Iterable[str], fields: Iterable[str]) -> str:
    """Returns the end of a message about a field that does not exist: what may have been meant.

    Args:
      name: last part of the field's name.
      group: names of the group in which it was looked for.
      fields: dotted names of all fields.
    """
    fields = list(fields)
    leaves = {field.rpartition(".")[2]: field for field in reversed(fields)}
    found = next((field for field in OTHER_NAMES.get(name, ()) if field in fields), "")
    found = found or leaves.get(name, "")
    if not found and (close := difflib.get_close_matches(name, list(group), 1)):
        found = close[0]
    if not found and (close := difflib.get_close_matches(name, leaves, 1, 0.75)):
        found = leaves[close[0]]
    if not found:
        return "docs/configuration.md has them all."
    example = _EXAMPLES.get(found) if name in OTHER_NAMES else None
    more = f", for example --config.{found}={shlex.quote(example)}" if example else ""
    return f"did you mean {found!r}{more}?"
