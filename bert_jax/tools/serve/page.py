"""The page of a server: a form for each thing that its model can do, and the answers."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_jax.tools.pages import attention
from bert_jax.tools.pages.document import Section, document, note, script_hashes
from bert_jax.tools.pages.markup import Content, tag
from bert_jax.tools.serve.requests import Field

if TYPE_CHECKING:
    from bert_jax.tools.serve.forms import View

_HERE = pathlib.Path(__file__).parent
_PARTS = tuple(str(_HERE / name) for name in ("page.css", "answers.js", "page.js"))
_WAITING_PARTS = (str(_HERE / "starting.js"),)


def page_policy() -> str:
    """Returns the policy of the pages: their own scripts only, and requests to their own server."""
    # A page of attention is shown in a frame, to which the policy of the page around it applies.
    parts = (*_PARTS, *_WAITING_PARTS, *attention.PARTS)
    scripts = " ".join(sorted(set(script_hashes(parts).split())))
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline';"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def waiting_page() -> str:
    """Returns the page that is shown until the model answers."""
    lead = [
        tag("p.quiet", "Loading the model.", role="status"),
        tag("noscript", note("Reload this page until the model is shown.")),
    ]
    title, policy = "The server is starting", page_policy()
    return document(title, [], lead=lead, parts=_WAITING_PARTS, policy=policy)


def serve_page(
    name: str, about: str, views: "Sequence[tuple[str, View]]", missing: Mapping[str, str]
) -> str:
    """Returns the page.

    Args:
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
        [tag("p", reason) for reason in dict.fromkeys(missing.values())],
        tag(
            "p",
            "The same answers as JSON: ",
            tag("a", "the API", href="/api"),
            ", described in ",
            tag("a", "OpenAPI", href="/openapi.json"),
            ".",
        ),
    ]
    return document(name, sections, lead=lead, footer=footer, parts=_PARTS, policy=page_policy())


def _panel(name: str, url: str, view: "View") -> Content:
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
        [_control(name, field) for field in view.fields],
        tag("p.samples", tag("span.quiet", "Try "), samples) if samples else None,
        tag("p.send", tag("button.primary", "Ask the model", type="submit"), tag("span.state")),
        data_url=url,
        data_drawing=json.dumps(dict(view.drawing)),
    )
    answer = tag("div.answer", tag("p.quiet.empty", "The answer appears here."), aria_live="polite")
    return [tag("p.quiet", view.note), tag("div.both", form, answer)]


def _control(view: str, field: Field) -> Content:
    name = f"{view}-{field.name}"
    box = tag(
        "textarea",
        id=name,
        name=field.name,
        rows=field.rows,
        style=f"--rows: {field.rows}",
        spellcheck="false",
        data_list=field.is_list,
        data_optional=field.optional,
        data_needs=field.needs or None,
    )
    hint = field.hint or ("may be empty" if field.optional else "")
    shown = [tag("strong", field.label), tag("span.hint", f" {hint}") if hint else None]
    return tag("p.field", tag("label", shown, for_=name), box)


def _name(sample: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> str:
    """Returns the first text of a sample that tells it from the others."""
    texts = {name: value for name, value in sample.items() if value and isinstance(value, str)}
    own = [text for name, text in texts.items() if any(o.get(name) != text for o in samples)]
    text = next(iter([*own, *texts.values()]), "") or " / ".join(*sample.values())
    return text if len(text) <= 60 else f"{text[:59]}…"
