"""Markup, tables, scales and pictures."""

import math

import pytest

from bert_jax.tools.pages import scales
from bert_jax.tools.pages.bars import Dots, bar_chart, dot_plot, heat_map, histogram
from bert_jax.tools.pages.markup import Markup, render, tag
from bert_jax.tools.pages.plot import Level, Line, line_plot
from tests.tools.pages.made_runs import HOSTILE, figure_of, points_of, read_page, table_of


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", "a<b", tag("b", "&"), [1, None, 2.5]) == "<p>a&lt;b<b>&amp;</b>12.5</p>"
    assert tag("a", href='"><x') == '<a href="&quot;&gt;&lt;x"></a>'
    assert tag("p.note.wide", class_="more", hidden=True, id=None, data_x=1.005) == (
        '<p class="note wide more" hidden="" data-x="1"></p>'
    )
    assert render("<", Markup("<br>")) == "&lt;<br>"
    assert tag("br") == "<br>"


@pytest.mark.parametrize(
    "values", [(0.5,), (0.0,), (-3.0, 8.0), (6.1, 9.7), (1e-7, 3e-7), (1e9, 2e9)]
)
def test_a_scale_holds_its_values_between_round_ticks(values):
    scale = scales.linear(values, 190, 14)
    assert scale.low <= min(values) and max(values) <= scale.high
    assert (scale.ticks[0], scale.ticks[-1]) == pytest.approx((scale.low, scale.high))
    steps = [b - a for a, b in zip(scale.ticks, scale.ticks[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-6)
    mantissa = steps[0] / 10 ** math.floor(math.log10(steps[0]) + 1e-9)
    assert min(abs(mantissa - m) for m in (1, 2, 2.5, 5, 10)) < 1e-6
    assert scale.place(scale.low) == pytest.approx(190) and scale.place(
        scale.high
    ) == pytest.approx(14)
    assert not any(v >= 0 for v in values) or min(values) < 0 or scale.low >= 0


def test_a_logarithmic_scale():
    scale = scales.logarithmic([0.02, 30.0], 0, 100)
    assert (scale.low, scale.high) == pytest.approx((0.01, 100))
    assert scale.place(1.0) == pytest.approx(50)
    assert scale.place(1e9) == 100  # outside: at the end


@pytest.mark.parametrize(
    "values, is_log, places",
    [
        ([3e-4, 3e-3, 1e-3, 3e-4], True, [0, 52.29, 100]),
        ([16, 32, 48], False, [0, 50, 100]),
        ([16], False, [50]),
        ([0.0, 0.1], False, [0, 100]),
    ],
)
def test_a_scale_of_few_values_has_them_as_ticks(values, is_log, places):
    scale = scales.at_values(values, 0, 100)
    assert scale.ticks == tuple(sorted(set(values))) and scale.is_log == is_log
    assert [scale.place(x) for x in scale.ticks] == pytest.approx(places, abs=0.01)


def test_labels_and_units():
    labels = [scales.short(x) for x in (0, 0.5, 2500, 1e6, 2e-5, -4000)]
    assert labels == ["0", "0.5", "2.5k", "1M", "2e-5", "-4k"]
    assert scales.short(0.4, percent=True) == "40%"
    small = scales.linear([0.0, 1e-4], 0, 100)
    assert [label for _, label in scales.labels(small)][-3:] == ["6e-5", "8e-5", "1e-4"]
    assert dict(scales.labels(small))[0.0] == "0"
    plain = scales.linear([0.0, 1e-3], 0, 100)
    assert [label for _, label in scales.labels(plain)][-2:] == ["0.0008", "0.001"]
    assert [scales.duration(x) for x in (5, 125, 3725)] == ["0:05", "2:05", "1:02:05"]
    assert scales.time_unit(90) == (1.0, "seconds") and scales.time_unit(9000)[1] == "hours"


def test_lines_keep_their_values_on_both_kinds_of_scale():
    line = Line(HOSTILE, {"steps": [1, 2, 4]}, [1.0, None, 3.0])
    page = read_page(line_plot("t", [line], levels=[Level(HOSTILE, 2.0)]))
    ((first, last),) = points_of(figure_of(page, "t"), "steps")
    assert first == pytest.approx((1, 1), abs=0.02) and last == pytest.approx((4, 3), abs=0.02)
    assert table_of(figure_of(page, "t"))[1:] == [[HOSTILE, "1", "1"], [HOSTILE, "4", "3"]]
    page = read_page(line_plot("t", [line], is_log=True))
    places = [p.attributes["d"] for p in page.find("path", class_="line")]
    assert places == ["M46.0 190.0M390.0 106.0"]  # 3 is log10(3) = 0.477 of the way from 1 to 10


def test_many_values_become_means():
    line = Line("a", {"steps": list(range(1, 1001))}, [float(i % 2) for i in range(1000)])
    page = read_page(line_plot("t", [line]))
    rows = table_of(figure_of(page, "t"))[1:]
    assert [row[1] for row in rows[:2]] == ["2", "4"] and {row[2] for row in rows} == {"0.5"}


def test_bars_are_as_long_as_their_values():
    page = read_page(bar_chart("t", {HOSTILE: 30.0, "b": 120.0}))
    bars = [b for b in page.find("rect", class_="bar") if "track" not in b.attributes["class"]]
    assert [float(bar.attributes["width"]) for bar in bars] == [100, 400]
    shares = read_page(bar_chart("t", {"a": 0.25}, percent=True))
    (bar,) = (b for b in shares.find("rect") if "data-tip" in b.attributes)
    assert float(bar.attributes["width"]) == 100 and bar.attributes["data-tip"] == "a: 25.0%"


def test_columns_are_as_high_as_their_numbers():
    figure = figure_of(read_page(histogram("t", [0, 10, 40, 800], 8)), "t")
    header, *rows = table_of(figure)
    assert header == ["range", "number"]
    assert rows == [["1 to 8", "0"], ["9 to 16", "10"], ["17 to 24", "40"], ["25 to 32", "800"]]
    heights = [float(bar.attributes["height"]) for bar in figure.find("rect", class_="bar")]
    assert heights == pytest.approx([116 * n / 800 for n in (0, 10, 40, 800)], abs=0.01)


def test_points_over_seeds_with_mean_and_paper():
    rows = [Dots(HOSTILE, {"s0": 80.0, "s1": 90.0}, paper=100.0, baseline=70.0)]
    figure = figure_of(read_page(dot_plot("t", rows)), "t")
    points = [
        float(c.attributes["cx"]) for c in figure.find("circle") if "data-tip" in c.attributes
    ]
    ends = {tick.text: float(tick.attributes["x"]) for tick in figure.find("text", y="60")}
    scale = lambda v: ends["70"] + (v - 70) / 30 * (ends["100"] - ends["70"])  # noqa: E731
    assert points == pytest.approx([scale(80), scale(90)], abs=0.1)
    assert "85 ± 7.1" in figure.text  # 5 * sqrt(2)
    tips = [p.attributes["data-tip"] for p in figure.find("path") if "data-tip" in p.attributes]
    assert tips == ["constant prediction: 70", "paper: 100"]


def test_cells_are_shaded_by_the_share_of_their_row():
    page = read_page(heat_map("t", ["a", HOSTILE], [[3, 1], [0, 0]]))
    cells = [cell.attributes["fill-opacity"] for cell in page.find("rect", class_="heat")]
    assert cells == ["0.75", "0.25", "0.00", "0.00"]
    assert [t.text for t in page.find("text", class_="cell")] == ["3", "1", "0", "0"]
    many = read_page(heat_map("t", [str(i) for i in range(40)], [[1] * 40] * 40))
    assert not list(many.find("rect")) and len(list(many.find("td"))) == 40 * 41
