"""Lines against steps, tokens or seconds, as SVG.

A plot is drawn once for each axis; a switch on the page shows one of them. Its table holds every
value once: the script reads it to show the values under the pointer, and copies it as CSV.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bert_jax.tools.pages import scales, tables
from bert_jax.tools.pages.markup import Content, Markup, tag
from bert_jax.tools.pages.scales import Scale

COLORS = 8  # of plot.css
_WIDTH, _HEIGHT = 400, 236
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 390, 14, 190
_EDGE = 16  # between the ends of the axis and the first and the last of a few values
_POINTS_IN_ALL = 600  # per plot, to keep pages small
_NAME = 46  # characters that fit below an axis


@dataclass(frozen=True)
class Line:
    """Values along one or several axes.

    Attributes:
      name: name in the legend and in the table.
      x: axis -> places of the values, ascending; all lines of a plot have the same axes.
      y: the values; None where there is none, which interrupts the line.
      color: number of the color and of the dashes; names of the same color share a legend.
      has_points: whether each value has a mark, for short series.
      has_line: whether the values are connected.
      is_reference: drawn thin and dashed, such as a diagonal.
    """

    name: str
    x: Mapping[str, Sequence[float]]
    y: Sequence[float | None]
    color: int = 0
    has_points: bool = False
    has_line: bool = True
    is_reference: bool = False


@dataclass(frozen=True)
class Level:
    """A value to compare with, drawn from left to right."""

    name: str
    value: float


@dataclass(frozen=True)
class Mark:
    """Something that happened, at a place on each axis.

    Attributes:
      text: shown under the pointer.
      x: axis -> place; it is not drawn on an axis without one.
      is_bad: drawn to stand out.
    """

    text: str
    x: Mapping[str, float]
    is_bad: bool = False


def line_plot(
    title: str,
    lines: Sequence[Line],
    *,
    levels: Sequence[Level] = (),
    marks: Sequence[Mark] = (),
    percent: bool = False,
    is_log: bool = False,
    few: bool = False,
    note: Content = None,
) -> Markup:
    """Returns a figure: title, legend, picture, and a table that opens.

    Args:
      title: title of the vertical axis, with its unit.
      lines: lines with at least one value in all.
      levels, marks: drawn behind the lines.
      percent: whether values are shares, shown as percentages.
      is_log: whether the vertical axis is logarithmic; all values are positive.
      few: whether the horizontal axis has a tick for each value (`scales.at_values`).
    """
    drawn = [_thinned(line, max(40, _POINTS_IN_ALL // len(lines))) for line in lines]
    values = [y for line in drawn for y in line.y if y is not None]
    values += [level.value for level in levels]
    scale = (scales.logarithmic if is_log else scales.linear)(values, _BOTTOM, _TOP)
    picture = _picture(title, drawn, scale, levels, marks, percent, few)
    legend = _legend(drawn) if len(drawn) > 1 or drawn[0].has_points else None
    thinned = any(len(a.y) < len(b.y) for a, b in zip(drawn, lines, strict=True))
    remark = "Each point is the mean of several reports." if thinned else None
    return tables.figure(title, legend, picture, _table(title, drawn), note=[note, " ", remark])


def standalone(title: str, lines: Sequence[Line]) -> str:
    """Returns an SVG with title and legend, as a file of its own, in the light colors."""
    named = _first_by_color(lines)
    top = 24 + 18 * len(named)
    names = [
        tag(
            "g",
            tag(f"path.line.c{line.color % COLORS}", d="M0 -4H22"),
            tag("text.name", line.name, x=30, y=0),
            transform=f"translate({_LEFT} {36 + 18 * number})",
        )
        for number, line in enumerate(named)
    ]
    style = (pathlib.Path(__file__).parent / "plot.css").read_text(encoding="utf-8")
    values = [y for line in lines for y in line.y if y is not None]
    picture = _picture(title, lines, scales.linear(values, _BOTTOM, _TOP))
    whole = tag(
        "svg.plot",
        tag("style", Markup(style)),
        tag("rect", width="100%", height="100%", fill="white"),
        tag("text.name", title, x=_LEFT, y=16, font_weight="bold"),
        names,
        tag("g", picture, transform=f"translate(0 {top})"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {_HEIGHT + top}",
    )
    return f"{whole}\n"


def _first_by_color(lines: Sequence[Line]) -> list[Line]:
    """Returns the lines of the legend: the first of each color."""
    first = {line.color: line for line in reversed(lines)}
    return [first[color] for color in sorted(first)]


def _legend(lines: Sequence[Line]) -> Markup:
    shapes = {}
    for line in _first_by_color(lines):
        kind = _kind(line)
        same = [other for other in lines if other.color == line.color]
        has_line, has_points = any(x.has_line for x in same), any(x.has_points for x in same)
        sample = tag(f"path.line.{kind}", d="M0 5H22") if has_line else None
        point = tag(f"circle.dot.{kind}", cx=11, cy=5, r=3) if has_points else None
        shapes[line.name] = [sample, point]
    return tables.legend(shapes)


def _kind(line: Line) -> str:
    return "ref" if line.is_reference else f"c{line.color % COLORS}"


def _table(title: str, lines: Sequence[Line]) -> Markup:
    """Returns the values in the order in which they are drawn: page.js relies on it."""
    axes = list(lines[0].x)
    rows = [
        [line.name, *(line.x[axis][i] for axis in axes), y]
        for line in lines
        for i, y in enumerate(line.y)
        if y is not None
    ]
    return tables.table(["line", *axes, "value"], rows, caption=title, copy=True)


def _thinned(line: Line, max_values: int) -> Line:
    """Returns a line of at most `max_values` points, each the mean of equally many values."""
    if len(line.y) <= max_values:
        return line
    every = -(-len(line.y) // max_values)
    starts = range(0, len(line.y), every)
    parts = [[y for y in line.y[i : i + every] if y is not None] for i in starts]
    x = {
        axis: [places[min(i + every, len(places)) - 1] for i in starts]
        for axis, places in line.x.items()
    }
    means = [sum(part) / len(part) if part else None for part in parts]
    return dataclasses.replace(line, x=x, y=means)


# ---------------------------------------------------------------------------------- the picture


def _picture(
    title: str,
    lines: Sequence[Line],
    scale: Scale,
    levels: Sequence[Level] = (),
    marks: Sequence[Mark] = (),
    percent: bool = False,
    few: bool = False,
) -> Markup:
    """Returns the SVG of lines whose values are on `scale`."""
    groups = [
        tag("g.axis", _along(axis, lines, marks, scale, few), data_axis=axis, hidden=number > 0)
        for number, axis in enumerate(lines[0].x)
    ]
    return tag(
        "svg.plot",
        _y_axis(scale, percent),
        [tag("path.line.ref", d=f"M{_LEFT} {scale.place(v.value):.1f}H{_RIGHT}") for v in levels],
        groups,
        _level_names(levels, scale, percent),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        height=_HEIGHT,
        role="img",
        aria_label=_spoken(title, lines),
        tabindex=0,
        data_plot=f"{_TOP} {_BOTTOM}",
        data_percent=percent,
    )


def _along(
    axis: str, lines: Sequence[Line], marks: Sequence[Mark], y_scale: Scale, few: bool
) -> Iterator[Content]:
    """Yields a horizontal axis with the marks and the lines on it."""
    places = [x for line in lines for x in line.x[axis]]
    size, unit = scales.time_unit(max(places)) if axis == "seconds" else (1.0, axis)
    values = [x / size for x in places]
    if few:
        scale = scales.at_values(values, _LEFT + _EDGE, _RIGHT - _EDGE)
    else:
        scale = scales.linear(values, _LEFT, _RIGHT, tight=True)
    yield tag("path.base", d=f"M{_LEFT} {_BOTTOM}H{_RIGHT}")
    for tick, label in scales.labels(scale):
        x = scale.place(tick)
        yield tag("path.tick", d=f"M{x:.1f} {_BOTTOM}v4")
        anchor = "end" if x > _RIGHT - 12 else "middle"
        yield tag("text", label, x=x, y=_BOTTOM + 18, text_anchor=anchor)
    middle = (_LEFT + _RIGHT) / 2
    yield tag("text.unit", tables.cut(unit, _NAME), x=middle, y=_HEIGHT - 8, text_anchor="middle")
    for mark in marks:
        if axis in mark.x:
            yield _mark(mark, scale.place(mark.x[axis] / size))
    for line in lines:
        x = [scale.place(place / size) for place in line.x[axis]]
        yield tag("g.values", _line(line, x, y_scale))


def _y_axis(scale: Scale, percent: bool) -> Iterator[Content]:
    for tick, label in scales.labels(scale, percent):
        y = scale.place(tick)
        yield tag("path.grid", d=f"M{_LEFT} {y:.1f}H{_RIGHT}")
        yield tag("text", label, x=_LEFT - 6, y=y + 4, text_anchor="end")


def _level_names(levels: Sequence[Level], scale: Scale, percent: bool) -> Iterator[Content]:
    taken: list[float] = []
    for level in sorted(levels, key=lambda level: -level.value):
        y = scale.place(level.value)
        label = y - 4 if y - 4 > _TOP + 8 else y + 13
        while any(abs(label - other) < 13 for other in taken):
            label += 13
        taken.append(label)
        value = f"{100 * level.value:.1f}%" if percent else f"{level.value:.3g}"
        text = f"{level.name} {value}"
        yield tag("text.level", text, x=_RIGHT, y=label, text_anchor="end")


def _mark(mark: Mark, x: float) -> Markup:
    kind = ".bad" if mark.is_bad else ""
    return tag(
        f"g.mark{kind}",
        tag("path", d=f"M{x:.1f} {_TOP}V{_BOTTOM}"),
        tag("path.head", d=f"M{x - 5:.1f} {_TOP - 8}h10l-5 8z"),
        tag("path.target", d=f"M{x - 9:.1f} 0h18v{_TOP + 8}h-18z", data_tip=mark.text),
    )


def _line(line: Line, x: Sequence[float], scale: Scale) -> Iterator[Content]:
    """Yields the path of a line, the path of its points, or both; page.js reads the places."""
    path, points, letter = [], [], "M"
    for across, y in zip(x, line.y, strict=True):
        if y is None:
            letter = "M"
            continue
        place = f"{across:.1f} {scale.place(y):.1f}"
        path.append(f"{letter}{place}")
        points.append(f"M{place}h0")
        letter = "L"
    if line.has_line:
        yield tag(f"path.line.{_kind(line)}", d="".join(path))
    if line.has_points or len(points) == 1:
        yield tag(f"path.points.{_kind(line)}", d="".join(points))


def _spoken(title: str, lines: Sequence[Line]) -> str:
    """ "Loss: training from 9.1 to 6.2, held-out from 8 to 6.5"."""
    parts = []
    for line in lines[:6]:
        values = [y for y in line.y if y is not None]
        if values and not line.is_reference:
            parts.append(f"{line.name} from {values[0]:.4g} to {values[-1]:.4g}")
    more = f" and {len(lines) - 6} more" if len(lines) > 6 else ""
    return f"{title}: {', '.join(parts)}{more}"
