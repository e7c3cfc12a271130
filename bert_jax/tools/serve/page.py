"""The page of a server: a form for each thing that its model can do, and the answers."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_jax.tools.pages import attention
from bert_jax.tools.pages.document import Section, document, note, script_hashes
from bert_jax.tools.pages.markup import Content, tag

_HERE = pathlib.Path(__file__).parent
_PARTS = tuple(str(_HERE / name) for name in ("page.css", "answers.js", "page.js"))


@dataclass(frozen=True)
class Control:
    """A field of a form.

    Attributes:
      name: of the field in a request.
      label: above it; messages name the field so.
      hint: beside the label.
      rows: lines of text that it shows.
      is_list: whether each line is a text of a list.
      optional: whether it may be empty.
      needs: what its text must contain.
    """

    name: str
    label: str
    hint: str = ""
    rows: int = 3
    is_list: bool = False
    optional: bool = False
    needs: str = ""


@dataclass(frozen=True)
class View:
    """A form of the page.

    Attributes:
      title: of its tab.
      note: what it shows, in a sentence.
      controls: its fields.
      samples: values of the fields to try.
      drawing: what the drawing of the answer needs to know.
    """

    title: str
    note: str
    controls: tuple[Control, ...]
    samples: tuple[Mapping[str, Any], ...]
    drawing: Mapping[str, Any] = field(default_factory=dict)


def page_policy() -> str:
    """Returns the policy of the page: its own scripts only, and requests to its own server."""
    # A page of attention is shown in a frame, to which the policy of the page around it applies.
    scripts = {*script_hashes(_PARTS).split(), *script_hashes(attention.PARTS).split()}
    return (
        f"default-src 'none'; script-src {' '.join(sorted(scripts))}; style-src 'unsafe-inline';"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def serve_page(
    name: str, about: str, views: Sequence[tuple[str, View]], missing: Mapping[str, str]
) -> str:
    """Returns the page.

    Args:
      name: of the workdir.
      about: the model in a few words.
      views: (address of the API, view) in order; several may have the same address.
      missing: what the model cannot do, and why.
    """
    sections = [
        Section(view.title, _panel(f"view-{number}", url, view))
        for number, (url, view) in enumerate(views)
    ]
    lead = [
        tag("p.quiet", about),
        tag("noscript", note("The page asks the server by a script, which is turned off here.")),
    ]
    footer = [
        [tag("p", reason) for reason in missing.values()],
        tag("p", "The same answers as JSON: ", tag("a", "the API", href="/api"), "."),
    ]
    return document(name, sections, lead=lead, footer=footer, parts=_PARTS, policy=page_policy())


def _panel(name: str, url: str, view: View) -> Content:
    samples = [
        tag(
            "button.sample",
            _name(sample, view.samples),
            type="button",
            data_sample=json.dumps(sample),
        )
        for sample in view.samples
    ]
    form = tag(
        "form.ask",
        [_control(name, control) for control in view.controls],
        tag("p.samples", tag("span.quiet", "Try "), samples) if samples else None,
        tag("p.send", tag("button.primary", "Ask the model", type="submit"), tag("span.state")),
        data_url=url,
        data_drawing=json.dumps(dict(view.drawing)),
    )
    answer = tag("div.answer", tag("p.quiet.empty", "The answer appears here."), aria_live="polite")
    return [tag("p.quiet", view.note), tag("div.both", form, answer)]


def _control(view: str, control: Control) -> Content:
    name = f"{view}-{control.name}"
    box = tag(
        "textarea",
        id=name,
        name=control.name,
        rows=control.rows,
        style=f"--rows: {control.rows}",
        spellcheck="false",
        data_list=control.is_list,
        data_optional=control.optional,
        data_needs=control.needs or None,
    )
    hint = control.hint or ("may be empty" if control.optional else "")
    shown = [tag("strong", control.label), tag("span.hint", f" {hint}") if hint else None]
    return tag("p.field", tag("label", shown, for_=name), box)


def _name(sample: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> str:
    """Returns the first text of a sample that tells it from the others."""
    texts = {name: value for name, value in sample.items() if value and isinstance(value, str)}
    own = [text for name, text in texts.items() if any(o.get(name) != text for o in samples)]
    text = next(iter([*own, *texts.values()]), "") or " / ".join(*sample.values())
    return text if len(text) <= 60 else f"{text[:59]}…"
