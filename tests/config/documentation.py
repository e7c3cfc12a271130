"""The text of docs/configuration.md, made from the comments above the fields."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

from bert_jax.config.encoders import ENCODERS
from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.group import Group, Rule, describe_range, flatten, rules
from bert_jax.config.task import TASKS, default_config

_FIELD = re.compile(r"    (\w+): ")
_INTRODUCTION = """\
# Configuration

Every field of a run, by group, with its default and what it means. An experiment in `configs/` sets
values of an editable copy, and `--config.optimizer.name=lamb` replaces one on the command line.
`bert_jax/config/` defines the fields, and `bert_jax/tasks/` those of `task`; this page is made from
their comments.

A duration (`warmup`, `every`) is a string: "10000" or "10000 steps", "2 epochs", "1e6 examples",
"3e9 tokens", "1e6 words" (between white space), or "1%" of the run. "0" is never, or no warm-up.
"""


def page() -> str:
    """Returns the page in Markdown."""
    return "\n".join([_INTRODUCTION, *_sections()])


def _sections() -> Iterator[str]:
    pretraining, finetuning = default_config("pretraining"), FinetuningConfig()
    yield from _section("The run", "", pretraining)
    for name, group in pretraining.groups():
        if name != "task":
            yield from _section(f"{name}", f"{name}.", group)
    for name, encoder in ENCODERS.items():
        if name != "bert":
            base = pretraining.model
            yield from _section(f"model, of {name}", "model.", encoder(), base)
    title = "Fine-tuning: further fields and other defaults"
    yield from _section(title, "", finetuning, pretraining)
    yield from _section("data, of fine-tuning", "data.", finetuning.data)
    others = [name for name, _ in pretraining.groups() if name not in ("data", "model", "task")]
    for name in others:
        base, group = getattr(pretraining, name), getattr(finetuning, name)
        if base != group:
            yield from _section(f"{name}, of fine-tuning", f"{name}.", group, base)
    for name in TASKS:
        config = default_config(name)
        usual = pretraining if config.has_corpus else finetuning
        yield from _section(f"task, {name}", "task.", config.task)
        if changed := dict(_differences(config, usual)):
            values = ", ".join(f"`{field}={value!r}`" for field, value in changed.items())
            yield f"Other defaults with this task: {values}.\n"


def _differences(config: Group, base: Group) -> Iterator[tuple[str, Any]]:
    """Yields the fields of other groups that have another default with a task, but the model's."""
    known = dict(flatten(base.to_dict()))
    for name, value in flatten(config.to_dict()):
        if not name.startswith(("task.", "model.")) and known.get(name, value) != value:
            yield name, value


def _section(title: str, prefix: str, group: Group, base: Group | None = None) -> Iterator[str]:
    """Yields the lines of a table; of a group with a base only what differs from it."""
    rows = []
    comments, found = comments_of(type(group)), rules(type(group))
    known = base.to_dict() if base else {}
    for name, value in group.to_dict().items():
        if isinstance(value, dict) or (name in known and known[name] == value):
            continue
        text = " ".join(filter(None, [comments.get(name, ""), _allowed(found[name])]))
        rows.append(f"| `{prefix}{name}` | `{value!r}` | {text} |".replace("\n", " "))
    if rows:
        about = inspect.getdoc(type(group)) or ""
        yield f"## {title}\n\n{about.splitlines()[0]}\n\n| field | default | meaning |"
        yield "| --- | --- | --- |"
        yield from rows
        yield ""


def _allowed(rule: Rule) -> str:
    """Returns what a rule says that the type of the default does not."""
    if rule.choices:
        return f"One of {', '.join(f'`{choice}`' for choice in rule.choices)}."
    is_plain = rule.minimum in (None, 0, 1) and rule.below == float("inf") and not rule.also
    return "" if is_plain else f"Allowed: {describe_range(rule)}."


def comments_of(group: type[Group]) -> dict[str, str]:
    """Returns the comment above each field of a group, those of its base classes included."""
    found: dict[str, str] = {}
    for base in reversed(group.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        comment: list[str] = []
        for line in inspect.getsource(base).splitlines():
            if line.startswith("    # "):
                comment.append(line.removeprefix("    # "))
            elif (match := _FIELD.match(line)) and comment:
                found[match[1]] = " ".join(comment).replace("|", "\\|")
                comment = []
            elif not _FIELD.match(line):
                comment = []
    return found
