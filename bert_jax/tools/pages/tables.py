"""Tables that scroll where they are too wide, and what surrounds a plot, such as its data."""

from collections.abc import Mapping, Sequence

from bert_jax.tools.pages.markup import Content, Markup, render, tag


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[Content]],
    *,
    caption: str,
    text_columns: int = 1,
    copy: bool = False,
) -> Markup:
    """Returns a table.

    Args:
      rows: cells; a number is formatted by `number`.
      text_columns: the first columns, which are text: at most two, or all. Those after them are
        aligned as numbers, by a class of the table (page.css): cells are most of a page's bytes.
      copy: whether it has a button that copies it as CSV.
    """
    heads = [tag("th", name, scope="col") for name in header]
    body = [tag("tr", map(_cell, row)) for row in rows]
    grid = tag(
        "table" if text_columns >= len(header) else f"table.t{text_columns}",
        tag("caption", caption),
        tag("thead", tag("tr", heads)),
        tag("tbody", body),
    )
    place = tag("div.scroll", grid, tabindex=0, role="region", aria_label=caption)
    button = tag("button.copy", "Copy CSV", type="button") if copy else None
    return tag("div.table", button, place)


def opened(summary: str, *content: Content) -> Markup:
    """Returns content that is hidden until its summary is clicked."""
    return tag("details", tag("summary", summary), *content)


def figure(
    title: str, legend: Content, picture: Content, data: Content, *, note: Content = None
) -> Markup:
    """Returns a plot with everything around it."""
    text = Markup(render(note).strip())
    small = tag("p.note", text) if text else None
    shown = opened("Data", data) if data else None
    return tag("figure", tag("figcaption", title), legend, picture, small, shown)


def legend(shapes: Mapping[str, Content]) -> Markup:
    """Returns names with their symbols in a plot, drawn in 22 x 10."""
    items = [
        tag("li", tag("svg.swatch", shape, viewBox="0 0 22 10", aria_hidden="true"), name)
        for name, shape in shapes.items()
    ]
    return tag("ul.legend", items)


def cut(name: str, max_length: int) -> str:
    """Returns a name, cut to at most `max_length` characters."""
    return name if len(name) <= max_length else f"{name[: max_length - 1]}…"


def number(value: float) -> str:
    """Returns a number with six significant digits, an integer with all."""
    if isinstance(value, int) or float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.6g}"


def _cell(content: Content) -> Markup:
    if isinstance(content, int | float) and not isinstance(content, bool):
        content = number(content)
    return tag("td", content)
