"""Tables that scroll where they are too wide, and the data behind a plot, to open and to copy."""

from collections.abc import Mapping, Sequence

from bert_jax.tools.pages.markup import Content, Markup, tag


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[Content]],
    *,
    caption: str,
    text_columns: int = 1,
    roles: Mapping[str, str] | None = None,
    copy: bool = False,
) -> Markup:
    """Returns a table.

    Args:
      header: the names of its columns.
      rows: cells; a number is printed as `number` does.
      caption: what it is, for those who do not see it.
      text_columns: the first columns, which are text: at most two, or all. Those after them are
        aligned as numbers, by a class of the table (page.css): cells are most of a page's bytes.
      roles: heading -> its role in a plot, see `plot.Line`.
      copy: whether it has a button that copies it as CSV.
    """
    heads = [tag("th", name, scope="col", data_role=(roles or {}).get(name)) for name in header]
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


def opened(summary: str, *content: Content, is_open: bool = False) -> Markup:
    """Returns content that is hidden until its summary is clicked."""
    return tag("details", tag("summary", summary), *content, open=is_open)


def number(value: float | None, digits: int = 6) -> str:
    """Returns a number with so many significant digits, an integer with all; "" for None."""
    if value is None:
        return ""
    if isinstance(value, int) or float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.{digits}g}"


def _cell(content: Content) -> Markup:
    if isinstance(content, int | float) and not isinstance(content, bool):
        content = number(content)
    return tag("td", content)
