"""Former names of configuration fields, for error messages that give the current one."""

from collections.abc import Iterable

from bert_jax.files.errors import UserError

# Former name -> current name.
RENAMED = {
    "data.batches": "data.batch_by",
    "data.document": "data.document_separator",
    "data.form": "data.line_format",
    "data.lengths": "data.bucket_lengths",
    "data.pack": "data.max_examples_per_row",
    "data.same_share": "data.keep_share",
    "eval.batches": "eval.max_batches",
    "head.labels": "head.problem_type",
    "model.first_norm": "model.first_layer_norm",
    "model.mask": "model.attention_pattern",
    "model.remat_keeps": "model.remat_policy",
    "model.window": "model.attention_window",
    "optimizer.restarts": "optimizer.phase_schedules",
    "optimizer.tail": "optimizer.decay_fraction",
}


def check_names(names: Iterable[str], *, is_labelled: bool) -> None:
    """Refuses former names of fields.

    Args:
      names: dotted names of fields.
      is_labelled: whether they are those of a configuration for labelled examples.

    Raises:
      UserError: a name is a former one.
    """
    former = RENAMED | ({"phases": "max_length"} if is_labelled else {})
    for name in names:
        if name in former:
            hint = ", a number of tokens such as 128" if name == "phases" else ""
            raise UserError(f"config.{name} is now config.{former[name]}{hint}.")
