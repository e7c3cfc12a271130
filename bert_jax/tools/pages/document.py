"""A page: one HTML file with its styles and its script, which loads nothing from a network."""

import base64
import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bert_jax.tools.pages.markup import Content, Markup, render, tag

_HERE = pathlib.Path(__file__).parent
# The page may load nothing, and no script runs but those in it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading.

    Attributes:
      title: text.
      body: content below the heading.
    """

    title: str
    body: Content


def document(
    title: str,
    sections: Sequence[Section],
    *,
    lead: Content = None,
    footer: Content = None,
    parts: Sequence[str] = (),
    policy: str = _POLICY,
) -> str:
    """Returns a page.

    Args:
      sections: sections in order; their titles are the table of contents.
      parts: names of further styles and scripts in this folder, such as "attention.js", or paths.
    """
    names = [f"section-{number}" for number in range(1, 1 + len(sections))]
    links = [
        tag("a", section.title, href=f"#{name}")
        for name, section in zip(names, sections, strict=True)
    ]
    body = [
        tag("header", tag("h1", title), lead),
        tag("nav", links, aria_label="Contents") if len(links) > 1 else None,
        tag(
            "main",
            [
                tag("section", tag("h2", section.title, id=name), section.body)
                for name, section in zip(names, sections, strict=True)
            ],
        ),
        tag("footer", footer) if footer else None,
        tag("div", id="tip", role="status", hidden=True),
        [tag("script", _file(name)) for name in ("page.js", *parts) if name.endswith(".js")],
    ]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag(
            "style",
            [_file(name) for name in ("plot.css", "page.css", *parts) if name.endswith(".css")],
        ),
    ]
    html = tag("html", tag("head", head), tag("body", body), lang="en")
    return render(Markup("<!DOCTYPE html>\n"), html, "\n")


def script_hashes(parts: Sequence[str]) -> str:
    """Returns the sources with which a policy allows the scripts of a page, and no others.

    Args:
      parts: parts of the page, as `document` takes them.
    """
    scripts = [_file(name) for name in ("page.js", *parts) if name.endswith(".js")]
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def columns(*content: Content) -> Markup:
    """Returns parts side by side, as many as the screen has room for."""
    return tag("div.columns", *content)


def note(*content: Content) -> Markup:
    """Returns a remark in small print."""
    return tag("p.note", *content)


def tiles(values: Mapping[str, str]) -> Content:
    """Returns numbers in large print, each with its name below."""
    return tag("dl.tiles", [tag("div", tag("dt", k), tag("dd", v)) for k, v in values.items()])


def switch(name: str, legend: str, options: Mapping[str, str]) -> Markup:
    """Returns radio buttons, the first of them on: value -> shown text."""
    labels = [
        tag(
            "label",
            tag("input", type="radio", name=name, value=value, checked=number == 0),
            shown,
        )
        for number, (value, shown) in enumerate(options.items())
    ]
    return tag("fieldset.switch", tag("legend", legend), labels)


def _file(name: str) -> Markup:
    return Markup((_HERE / name).read_text(encoding="utf-8"))
