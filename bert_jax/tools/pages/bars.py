"""Bars, points over seeds, and counts of pairs of classes, as SVG."""

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bert_jax.tools.pages import scales
from bert_jax.tools.pages.markup import Content, Markup, tag
from bert_jax.tools.pages.tables import cut, figure, legend, table

_WIDTH, _ROW, _TOP = 400, 40, 4
_MAX_CELLS = 24  # classes of a drawn confusion matrix
_EDGE = 18  # from the ends of a scale to those of the picture: half a label
_NAME = 44  # characters of a name that fit into a picture


@dataclass(frozen=True)
class Dots:
    """The values in one row of `dot_plot`.

    Attributes:
      name: name of the row.
      values: name of the run -> value.
      paper: the published value.
      baseline: the value of a trivial prediction.
    """

    name: str
    values: Mapping[str, float]
    paper: float | None = None
    baseline: float | None = None


def bar_chart(
    title: str,
    values: Mapping[str, float],
    *,
    percent: bool = False,
    high: float = 0.0,
    note: Content = None,
) -> Markup:
    """Returns a figure with a horizontal bar for each value, from 0.

    Args:
      values: name -> value, none negative, in the order of the bars.
      percent: whether values are shares.
      high: the value at the right end; 0: the largest, or 100 % of shares.
    """
    high = high or (1.0 if percent else max([*values.values(), 1e-12]))
    parts: list[Content] = []
    for number, (name, value) in enumerate(values.items()):
        y = _TOP + number * _ROW
        shown = f"{value:.1%}" if percent else f"{value:,.6g}"
        box, width = {"x": 0, "y": y + 20, "height": 8}, _WIDTH * value / high
        parts += [
            _heading(name, shown, y),
            tag("rect.bar.track", **box, width=_WIDTH),
            tag("rect.bar", **box, width=width, data_tip=f"{name}: {shown}"),
        ]
    spoken = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
    picture = _picture(parts, len(values) * _ROW, f"{title}: {spoken}")
    data = table(["name", "value"], list(values.items()), caption=title, copy=True)
    return figure(title, None, picture, data, note=note)


def histogram(title: str, counts: Sequence[int], width: int) -> Markup:
    """Returns a figure with a column for each range of whole numbers, all equally wide.

    Args:
      title: title, such as "Rows by length".
      counts: numbers of values from 1 to `width`, `width` + 1 to 2 `width`, ...; one is positive.
      width: numbers in a range.
    """
    total, bottom, step = sum(counts), 120, _WIDTH / len(counts)
    starts = range(1, 1 + width * len(counts), width)
    ranges = [f"{i} to {i + width - 1}" if width > 1 else str(i) for i in starts]
    parts: list[Content] = []
    for i, (name, count) in enumerate(zip(ranges, counts, strict=True)):
        height = (bottom - _TOP) * count / max(counts)
        place = {"x": i * step + 1, "width": step - 2}
        # The whole column responds to the pointer.
        area = {"y": _TOP, "height": bottom - _TOP, "fill": "none", "pointer_events": "all"}
        bar = tag("rect.bar", **place, y=bottom - height, height=height)
        tip = f"{name}: {count:,} ({count / total:.1%})"
        parts.append(tag("g", tag("rect", **place, **area), bar, data_tip=tip))
    parts.append(tag("path.base", d=f"M0 {bottom}H{_WIDTH}"))
    for i in range(0, len(counts) + 1, max(1, len(counts) // 4)):
        anchor = "start" if i == 0 else "end" if i == len(counts) else "middle"
        parts.append(tag("text", i * width, x=i * step, y=bottom + 16, text_anchor=anchor))
    rows = list(zip(ranges, counts, strict=True))
    spoken = ", ".join(f"{name}: {count}" for name, count in rows if count)
    picture = _picture(parts, bottom + 22, f"{title}: {spoken}")
    data = table(["range", "number"], rows, caption=title, copy=True)
    return figure(title, None, picture, data)


# ----------------------------------------------------------------------------- values over seeds


def spread(values: Collection[float]) -> str:
    """Returns "0.8123 ± 0.0121": mean and standard deviation (n - 1); or a single value alone."""
    more = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4g}{more}"


def dot_plot(title: str, rows: Sequence[Dots], *, note: Content = None) -> Markup:
    """Returns a figure of the values over seeds, with their mean and standard deviation.

    Args:
      rows: each with at least one value.
    """
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
    parts += [_dots(row, scale, _TOP + number * _ROW) for number, row in enumerate(rows)]
    spoken = "; ".join(f"{row.name} {spread(row.values.values())}" for row in rows)
    picture = _picture(parts, height + 22, f"{title}: {spoken}")
    header = ["name", "run", "value", "paper", "constant prediction"]
    data = [
        [row.name, run, value, row.paper, row.baseline]
        for row in rows
        for run, value in row.values.items()
    ]
    grid = table(header, data, caption=title, text_columns=2, copy=True)
    return figure(title, _dots_legend(rows), picture, grid, note=note)


def _dots(row: Dots, scale: scales.Scale, y: float) -> Iterator[Content]:
    values = row.values.values()
    mean, middle = statistics.fmean(values), y + 27
    if len(values) > 1:
        deviation = statistics.stdev(values)
        low, high = scale.place(mean - deviation), scale.place(mean + deviation)
        yield tag("path.whisker", d=f"M{low:.1f} {middle - 5}v10m0-5H{high:.1f}m0-5v10")
    yield _heading(row.name, spread(values), y)
    yield tag("path.whisker", d=f"M{scale.place(mean):.1f} {middle - 8}v16")
    if row.baseline is not None:
        d, tip = f"M{scale.place(row.baseline):.1f} {middle - 9}v18", f"{row.baseline:.4g}"
        yield tag("path.line.ref", d=d, data_tip=f"constant prediction: {tip}")
    if row.paper is not None:
        d = f"M{scale.place(row.paper):.1f} {middle - 7}l7 7-7 7-7-7z"
        yield tag("path.paper", d=d, data_tip=f"paper: {row.paper:g}")
    for run, value in row.values.items():
        tip = f"{row.name}\n{run}: {value:.6g}"
        yield tag("circle.dot.c0", cx=scale.place(value), cy=middle, r=4, data_tip=tip)


def _dots_legend(rows: Sequence[Dots]) -> Markup:
    shapes = {"a run": tag("circle.dot.c0", cx=11, cy=5, r=4)}
    if any(len(row.values) > 1 for row in rows):
        shapes["mean ± standard deviation"] = tag("path.whisker", d="M1 1v8m0-4H21m0-4v8M11 0v10")
    if any(row.paper is not None for row in rows):
        shapes["paper"] = tag("path.paper", d="M11 0l5 5-5 5-5-5z")
    if any(row.baseline is not None for row in rows):
        shapes["constant prediction"] = tag("path.line.ref", d="M11 0v10")
    return legend(shapes)


# --------------------------------------------------------------------------- confusion matrices


def heat_map(title: str, names: Sequence[str], counts: Sequence[Sequence[int]]) -> Markup:
    """Returns a figure of the confusion matrix: rows are gold, columns are predicted.

    Args:
      names: names of the classes; with more than 24 there is only a table.
      counts: [gold][predicted].
    """
    rows = [[name, *row] for name, row in zip(names, counts, strict=True)]
    data = table(["gold \\ predicted", *names], rows, caption=title, copy=True)
    if len(names) > _MAX_CELLS:
        return figure(title, None, data, None)
    left, width = 96, (_WIDTH - 96) / len(names)
    is_narrow = width < 40  # names are then vertical
    top, height = (64 if is_narrow else 22), min(width, 44.0)
    parts: list[Content] = []
    for i, name in enumerate(names):
        x, y = left + (i + 0.5) * width, top + (i + 0.5) * height + 4
        turned = {"transform": f"translate({x + 4:.1f} {top - 6}) rotate(-90)"}
        above = turned if is_narrow else {"x": x, "y": 14, "text_anchor": "middle"}
        column = cut(name, 8 if is_narrow else max(2, int(width / 7)))
        beside = {"x": left - 8, "y": y, "text_anchor": "end"}
        parts.append(tag("text.name", column, **above, data_tip=name))
        parts.append(tag("text.name", cut(name, 13), **beside, data_tip=name))
        for j, count in enumerate(counts[i]):
            share = count / max(1, sum(counts[i]))
            x = left + j * width
            box = {"x": x + 1, "y": y - 3 - height / 2, "width": width - 2, "height": height - 2}
            kind = "text.cell.strong" if share > 0.5 else "text.cell"
            text = tag(kind, count, x=x + width / 2, y=y, text_anchor="middle")
            cell = [
                tag("rect.bar.track", **box),
                tag("rect.heat", **box, fill_opacity=f"{share:.2f}"),
                text if width > 20 else None,
            ]
            tip = f"gold {name}, predicted {names[j]}: {count} ({share:.1%})"
            parts.append(tag("g", cell, data_tip=tip))
    right, total = sum(row[i] for i, row in enumerate(counts)), sum(map(sum, counts))
    spoken = f"{title}: {right} of {total} on the diagonal"
    picture = _picture(parts, top + len(names) * height + 4, spoken)
    small = "Rows are gold, columns are predicted; the shade is the share of the row."
    return figure(title, None, picture, data, note=small)


def _heading(name: str, shown: str, y: float) -> Content:
    """Returns the name of a row, and at its right end what is shown of its values."""
    return [
        tag("text.name", cut(name, _NAME), x=0, y=y + 14, data_tip=name),
        tag("text", shown, x=_WIDTH, y=y + 14, text_anchor="end"),
    ]


def _picture(parts: Content, height: float, spoken: str) -> Markup:
    view = f"0 0 {_WIDTH} {height:.0f}"
    return tag("svg.plot", parts, viewBox=view, role="img", aria_label=spoken)
