"""Elements of HTML and SVG, in which every text is escaped unless it is markup already."""

import html
from collections.abc import Iterable

# The elements of HTML without an end tag.
_VOID = frozenset({"br", "hr", "input", "meta"})


class Markup(str):
    """Text that is HTML or SVG; any other text is escaped where it becomes part of an element."""

    __slots__ = ()


# What an element may contain; None is nothing, an iterable is its items one after the other.
Content = str | int | float | None | Iterable["Content"]


def render(*content: Content) -> Markup:
    """Returns content as markup."""
    return Markup("".join(map(_render, content)))


def _render(content: Content) -> str:
    if isinstance(content, Markup):
        return content
    if content is None:
        return ""
    if isinstance(content, str | int | float):
        return html.escape(str(content))
    return "".join(map(_render, content))


def tag(name: str, /, *content: Content, **attributes: str | int | float | bool | None) -> Markup:
    """Returns an element.

    Args:
      name: such as "p", optionally with classes, as in "p.note" or "div.scroll.wide".
      content: see `render`.
      attributes: an underscore stands for a dash, and one at the end is dropped (`for_`). True is
        an empty value, False and None leave the attribute out. A float is rounded to 1/100.
    """
    name, *classes = name.split(".")
    if classes:
        attributes["class_"] = " ".join([*classes, *str(attributes.get("class_", "")).split()])
    start = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{start}>")
    return Markup(f"<{name}{start}>{render(*content)}</{name}>")


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    name = name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f' {name}=""'
    if isinstance(value, float):
        value = f"{value:.2f}".rstrip("0").rstrip(".")
    return f' {name}="{html.escape(str(value))}"'
