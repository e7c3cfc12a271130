"""Bars, points over seeds, and counts of pairs of classes, as SVG."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bert_jax.tools.pages import scales, tables
from bert_jax.tools.pages.markup import Content, Markup, tag
from bert_jax.tools.pages.plot import figure

_WIDTH, _ROW, _TOP = 400, 40, 4
_MOST_CELLS = 24  # classes of a drawn confusion matrix
_EDGE = 18  # from the ends of a scale to those of the picture: half a label
_NAME = 44  # characters of a name that fit into a picture


@dataclass(frozen=True)
class Dots:
    """The values of a row of `dot_plot`.

    Attributes:
      name: of the row.
      values: name of the run -> value.
      paper: the published value.
      baseline: the value of a trivial answer.
    """

    name: str
    values: Mapping[str, float]
    paper: float | None = None
    baseline: float | None = None
    color: int = field(default=0, kw_only=True)


def bar_chart(
    title: str,
    values: Mapping[str, float],
    *,
    percent: bool = False,
    high: float = 0.0,
    header: Sequence[str] = ("name", "value"),
    note: Content = None,
) -> Markup:
    """Returns a figure with a horizontal bar for each value, from 0.

    Args:
      title: of the figure.
      values: name -> value, none negative, in the order of the bars.
      percent: whether values are shares.
      high: the value at the right end; 0: the largest, or 100 % of shares.
      header: of the table.
      note: small print.
    """
    high = high or (1.0 if percent else max([*values.values(), 1e-12]))
    rows = []
    for number, (name, value) in enumerate(values.items()):
        y = _TOP + number * _ROW
        shown = f"{100 * value:.1f}%" if percent else f"{value:,.6g}"
        rows += [
            tag("text.name", _cut(name), x=0, y=y + 14, data_tip=name),
            tag("text", shown, x=_WIDTH, y=y + 14, text_anchor="end"),
            tag("rect.bar.track", x=0, y=y + 20, width=_WIDTH, height=8),
            tag(
                "rect.bar",
                x=0,
                y=y + 20,
                width=_WIDTH * value / high,
                height=8,
                data_tip=f"{name}: {shown}",
            ),
        ]
    spoken = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
    picture = _picture(rows, len(values) * _ROW, f"{title}: {spoken}")
    data = tables.table(header, list(values.items()), caption=title, copy=True)
    return figure(title, None, picture, data, note=note)


def histogram(title: str, counts: Sequence[int], width: int, *, note: Content = None) -> Markup:
    """Returns a figure with a column for each range of whole numbers, all equally wide.

    Args:
      title: what is counted, by what.
      counts: of 1 to `width`, of `width` + 1 to 2 `width`, ...; one is positive.
      width: numbers in a range.
      note: small print.
    """
    total, bottom, step = sum(counts), 120, _WIDTH / len(counts)
    ranges = [f"{i * width + 1} to {(i + 1) * width}" for i in range(len(counts))]
    if width == 1:
        ranges = [str(i + 1) for i in range(len(counts))]
    parts: list[Content] = []
    for i, (name, count) in enumerate(zip(ranges, counts, strict=True)):
        height = (bottom - _TOP) * count / max(counts)
        place = {"x": i * step + 1, "width": step - 2}
        parts.append(
            tag(
                "g",
                # All of the column answers to the pointer.
                tag(
                    "rect", **place, y=_TOP, height=bottom - _TOP, fill="none", pointer_events="all"
                ),
                tag("rect.bar", **place, y=bottom - height, height=height),
                data_tip=f"{name}: {count:,} ({100 * count / total:.1f}%)",
            )
        )
    parts.append(tag("path.base", d=f"M0 {bottom}H{_WIDTH}"))
    for i in range(0, len(counts) + 1, max(1, len(counts) // 4)):
        anchor = "start" if i == 0 else "end" if i == len(counts) else "middle"
        parts.append(tag("text", i * width, x=i * step, y=bottom + 16, text_anchor=anchor))
    spoken = ", ".join(f"{n}: {c}" for n, c in zip(ranges, counts, strict=True) if c)
    picture = _picture(parts, bottom + 22, f"{title}: {spoken}")
    rows = list(zip(ranges, counts, strict=True))
    data = tables.table(["range", "number"], rows, caption=title, copy=True)
    return figure(title, None, picture, data, note=note)


def dot_plot(title: str, rows: Sequence[Dots], *, digits: int = 4, note: Content = None) -> Markup:
    """Returns a figure of the values over seeds, with their mean and standard deviation (n - 1).

    Args:
      title: what the values are.
      rows: at least one value in all.
      digits: significant digits of the means.
      note: small print.
    """
    rows = [row for row in rows if row.values]
    everything = [value for row in rows for value in row.values.values()]
    for row in rows:
        everything += [v for v in (row.paper, row.baseline) if v is not None]
    scale = scales.linear(everything, _EDGE, _WIDTH - _EDGE)
    height = _TOP + len(rows) * _ROW
    parts: list[Content] = []
    for tick, label in scales.labels(scale):
        x = scale.place(tick)
        parts.append(tag("path.grid", d=f"M{x:.1f} {_TOP}V{height}"))
        parts.append(tag("text", label, x=x, y=height + 16, text_anchor="middle"))
    for number, row in enumerate(rows):
        parts += _dots(row, scale, _TOP + number * _ROW, digits)
    picture = _picture(parts, height + 22, f"{title}: {'; '.join(map(_spread, rows))}")
    header = ["name", "run", "value", "paper", "constant prediction"]
    data = [
        [row.name, run, value, row.paper, row.baseline]
        for row in rows
        for run, value in row.values.items()
    ]
    table = tables.table(header, data, caption=title, text_columns=2, copy=True)
    return figure(title, _dots_legend(rows), picture, table, note=note)


def _dots(row: Dots, scale: scales.Scale, y: float, digits: int) -> Iterator[Content]:
    values = list(row.values.values())
    mean, middle = statistics.fmean(values), y + 27
    shown = f"{mean:.{digits}g}"
    if len(values) > 1:
        deviation = statistics.stdev(values)
        low, high = scale.place(mean - deviation), scale.place(mean + deviation)
        yield tag("path.whisker", d=f"M{low:.1f} {middle - 5}v10m0-5H{high:.1f}m0-5v10")
        shown += f" ± {deviation:.2g}"
    yield tag("text.name", _cut(row.name), x=0, y=y + 14, data_tip=row.name)
    yield tag("text", shown, x=_WIDTH, y=y + 14, text_anchor="end")
    x = scale.place(mean)
    yield tag("path.whisker", d=f"M{x:.1f} {middle - 8}v16")
    if row.baseline is not None:
        x = scale.place(row.baseline)
        tip = f"constant prediction: {row.baseline:.4g}"
        yield tag("path.line.ref", d=f"M{x:.1f} {middle - 9}v18", data_tip=tip)
    if row.paper is not None:
        x = scale.place(row.paper)
        tip = f"paper: {row.paper:g}"
        yield tag("path.paper", d=f"M{x:.1f} {middle - 7}l7 7-7 7-7-7z", data_tip=tip)
    for run, value in row.values.items():
        kind = f"c{row.color}"
        tip = f"{row.name}\n{run}: {value:.6g}"
        yield tag(f"circle.dot.{kind}", cx=scale.place(value), cy=middle, r=4, data_tip=tip)


def _dots_legend(rows: Sequence[Dots]) -> Markup:
    shapes = [("a run", tag("circle.dot.c0", cx=11, cy=5, r=4))]
    if any(len(row.values) > 1 for row in rows):
        path = tag("path.whisker", d="M1 1v8m0-4H21m0-4v8M11 0v10")
        shapes.append(("mean ± standard deviation", path))
    if any(row.paper is not None for row in rows):
        shapes.append(("paper", tag("path.paper", d="M11 0l5 5-5 5-5-5z")))
    if any(row.baseline is not None for row in rows):
        line = tag("path.line.ref", d="M11 0v10")
        shapes.append(("constant prediction", line))
    items = [
        tag("li", tag("svg.swatch", shape, viewBox="0 0 22 10", aria_hidden="true"), name)
        for name, shape in shapes
    ]
    return tag("ul.legend", items)


def _spread(row: Dots) -> str:
    values = list(row.values.values())
    deviation = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
    return f"{row.name} {statistics.fmean(values):.4g}{deviation}"


def heat_map(
    title: str, names: Sequence[str], counts: Sequence[Sequence[int]], *, note: Content = None
) -> Markup:
    """Returns a figure of the confusion matrix: rows are gold, columns are predicted.

    Args:
      title: of the figure.
      names: of the classes.
      counts: [gold][predicted].
      note: small print; with more classes than can be drawn only the table is there.
    """
    header = ["gold \\ predicted", *names]
    rows = [[name, *row] for name, row in zip(names, counts, strict=True)]
    data = tables.table(header, rows, caption=title, copy=True)
    if len(names) > _MOST_CELLS:
        return figure(title, None, data, None, note=note)
    left, size = 96, (_WIDTH - 96) / len(names)
    is_narrow = size < 40  # then names stand upright
    top = 64 if is_narrow else 22
    tall = min(size, 44.0)
    parts: list[Content] = []
    for i, name in enumerate(names):
        middle = left + (i + 0.5) * size
        place = {"x": middle, "y": 14, "text_anchor": "middle"}
        if is_narrow:
            turned = f"translate({middle + 4:.1f} {top - 6}) rotate(-90)"
            place = {"transform": turned}
        room = 8 if is_narrow else max(2, int(size / 7))
        parts += [
            tag("text.name", _cut(name, room), **place, data_tip=name),
            tag(
                "text.name",
                _cut(name, 13),
                x=left - 8,
                y=top + (i + 0.5) * tall + 4,
                text_anchor="end",
                data_tip=name,
            ),
        ]
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            parts.append(_cell(names, i, j, count, count / max(1, sum(row)), left, top, size, tall))
    height = top + len(names) * tall + 4
    spoken = f"{title}: {sum(counts[i][i] for i in range(len(names)))} of"
    picture = _picture(parts, height, f"{spoken} {sum(map(sum, counts))} on the diagonal")
    small = note or "Rows are gold, columns are predicted; the shade is the share of the row."
    return figure(title, None, picture, data, note=small)


def _cell(
    names: Sequence[str],
    i: int,
    j: int,
    count: int,
    share: float,
    left: float,
    top: float,
    size: float,
    tall: float,
) -> Markup:
    x, y = left + j * size, top + i * tall
    tip = f"gold {names[i]}, predicted {names[j]}: {count} ({100 * share:.1f}%)"
    dark = ".strong" if share > 0.5 else ""
    text = tag(f"text.cell{dark}", count, x=x + size / 2, y=y + tall / 2 + 4, text_anchor="middle")
    box = {"x": x + 1, "y": y + 1, "width": size - 2, "height": tall - 2}
    ground = tag("rect.bar.track", **box)
    cell = tag("rect.heat", **box, fill_opacity=f"{share:.2f}")
    return tag("g", ground, cell, text if size > 20 else None, data_tip=tip)


def _picture(parts: Content, height: float, spoken: str) -> Markup:
    view = f"0 0 {_WIDTH} {height:.0f}"
    return tag("svg.plot", parts, viewBox=view, role="img", aria_label=spoken)


def _cut(name: str, most: int = _NAME) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
