"""Reports in Chromium: what is seen, hovered, tapped, copied; accessibility; no request."""

import csv
import io
import pathlib

import pytest

from bert_jax.tools.pages.bars import Dots, bar_chart, dot_plot
from bert_jax.tools.pages.document import Section, columns, document, note
from bert_jax.tools.pages.markup import tag
from bert_jax.tools.pages.plot import Line, line_plot
from bert_jax.tools.pages.tables import table
from bert_jax.tools.report.report import report
from tests.tools.pages.made_runs import (
    HOSTILE,
    figure_of,
    read_page,
    table_of,
    write_finetuning,
    write_pretraining,
)

LOSS = "Masked tokens: loss (nats)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, pathlib.Path]:
    """A report of a pre-training, of a fine-tuning, and of both and another run."""
    root = tmp_path_factory.mktemp("reports")
    write_pretraining(root / "pre", every=60)  # few rows: a check of every cell is slow
    write_pretraining(root / "more", steps=300, every=60, rate=2e-3)
    write_finetuning(root / "fine")
    found = {}
    for name, runs in {"pre": ["pre"], "fine": ["fine"], "several": ["pre", "more"]}.items():
        found[name] = root / f"{name}.html"
        found[name].write_text(report([str(root / run) for run in runs]), encoding="utf-8")
    (root / "long.html").write_text(_long_words(), encoding="utf-8")
    few = line_plot("few", [Line("run", {"rate": [1, 10, 100]}, [5, 6, 7])], few=True)
    (root / "few.html").write_text(document("few", [Section("few", few)]), encoding="utf-8")
    return found | {name: root / f"{name}.html" for name in ("long", "few")}


def _long_words() -> str:
    """A page in which every text is a word that no phone has place for."""
    word = "--set=" + "corpus/of/novels/" * 20
    body = [
        note(word),
        tag("div.text", word),
        table([word, word], [[word, 1]], caption=word),
        columns(bar_chart(word, {word: 1.0}), dot_plot(word, [Dots(word, {word: 1.0})])),
        line_plot(word, [Line(word, {word: [1, 2]}, [1, 2], has_points=True)]),
    ]
    return document(word, [Section(word, body)] * 2, lead=word, footer=word)


@pytest.fixture
def show(visit, pages):
    """Returns the function (name, **options of `visit`) -> the opened page."""
    return lambda name, **options: visit(pages[name].as_uri(), **options)


def plot(page, title: str):
    """The picture of a title."""
    figure = page.locator("figure").filter(has=page.get_by_text(title, exact=True))
    return figure.locator("svg.plot")


def test_plots_are_drawn_in_the_colors_of_the_scheme(show):
    backgrounds, strokes = set(), set()
    for scheme in ("light", "dark"):
        page = show("pre", color_scheme=scheme)
        line = plot(page, LOSS).locator("g[data-axis=steps] path.line").last
        assert line.bounding_box()["width"] > 200
        assert not plot(page, LOSS).locator("g[data-axis=tokens]").is_visible()
        strokes.add(line.evaluate("e => getComputedStyle(e).stroke"))
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(strokes) == len(backgrounds) == 2


def test_the_pointer_a_finger_and_keys_show_values(show, pages):
    rows = table_of(figure_of(read_page(pages["pre"].read_text(encoding="utf-8")), LOSS))
    last = {name: f"{float(value):.5g}" for name, *_, value in rows[1:]}
    shown = f"steps 600\nheld-out: {last['held-out']}\ntraining: {last['training']}"
    page = show("pre")
    picture = plot(page, LOSS)
    box = picture.bounding_box()
    place = {"x": box["width"] * 390 / 400, "y": box["height"] / 2}
    picture.hover(position=place)
    assert page.locator("#tip").inner_text() == shown
    page.mouse.move(2, 2)
    assert page.locator("#tip").is_hidden()
    picture.focus()
    page.keyboard.press("ArrowLeft")  # from where the pointer was
    assert page.locator("#tip").inner_text().startswith("steps 540\ntraining: ")
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip").inner_text() == shown
    plot(page, LOSS).locator("g[data-axis=steps] .target").first.hover()
    assert page.locator("#tip").inner_text() == "resumed after step 200"
    page = show("pre", width=380, has_touch=True)
    box = plot(page, LOSS).bounding_box()
    plot(page, LOSS).tap(position={"x": box["width"] * 390 / 400, "y": box["height"] / 2})
    assert page.locator("#tip").inner_text() == shown


def test_the_pointer_finds_values_of_a_logarithmic_axis(show):
    page = show("few")
    box = plot(page, "few").bounding_box()
    # The axis is from 46 to 390 of 400, with 16 on both sides of its values.
    for x, shown in ((62, "rate 1\nrun: 5"), (218, "rate 10\nrun: 6"), (374, "rate 100\nrun: 7")):
        plot(page, "few").hover(position={"x": box["width"] * x / 400, "y": box["height"] / 2})
        assert page.locator("#tip").inner_text() == shown
        tip = page.locator("g.axis .here, .here").first.evaluate("e => e.cx.baseVal.value")
        assert tip == pytest.approx(x, abs=1)


def test_the_switch_changes_the_axis_of_all_plots(show):
    page = show("several")
    figure = page.locator("figure").filter(has=page.get_by_text("Learning rate", exact=True))
    page.get_by_label("seconds").check(force=True)
    assert figure.locator("g.axis:not([hidden]) .unit").text_content() == "minutes"
    assert page.locator("g.axis[data-axis=steps]:not([hidden])").count() == 0
    picture = figure.locator("svg.plot")
    box = picture.bounding_box()
    picture.hover(position={"x": box["width"] * 389 / 400, "y": box["height"] / 2})
    assert page.locator("#tip").inner_text().startswith("0:02:32\n")


def test_a_table_opens_and_is_copied_as_csv(show, pages):
    page = show("fine")
    figure = page.locator("figure").filter(has=page.get_by_text("F1 by class", exact=True))
    assert figure.locator("table").is_hidden()
    figure.get_by_text("Data", exact=True).click()
    assert figure.locator("table").is_visible()
    align = "cells => cells.map((cell) => getComputedStyle(cell).textAlign)"
    cells = figure.locator("tr").last.locator("td")
    assert cells.evaluate_all(align) == ["left", "right"]
    page.evaluate(
        "const clipboard = {writeText: async (t) => { window.copied = t; }};"
        "Object.defineProperty(navigator, 'clipboard', {value: clipboard});"
    )
    figure.get_by_role("button").click()
    figure.get_by_text("Copied").wait_for()
    root = read_page(pages["fine"].read_text(encoding="utf-8"))
    wanted = table_of(figure_of(root, "F1 by class"))
    assert [*csv.reader(io.StringIO(page.evaluate("window.copied")))] == wanted
    assert wanted[1][0] == HOSTILE


@pytest.mark.parametrize("name", ["pre", "fine", "long"])
def test_a_phone_shows_everything(show, name):
    page = show(name, width=380)
    page.evaluate("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    wide = page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter((e) => {
          const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
          const box = e.getBoundingClientRect();
          return own && box.width && !e.closest(".scroll, script, caption, .axis[hidden]")
            && (box.right > 380.5 || box.left < -0.5);
        }).map((e) => e.outerHTML.slice(0, 200))"""
    )
    assert wide == []
    smallest = page.evaluate(
        """() => Math.min(...[...document.querySelectorAll(".plot text")].map((e) =>
          parseFloat(getComputedStyle(e).fontSize) * e.closest("svg").getScreenCTM().a))"""
    )
    assert smallest >= 10  # pixels


@pytest.mark.parametrize("name", ["pre", "fine", "long"])
def test_a_print_has_margins_whole_plots_and_no_controls(show, name, tmp_path):
    """Of a sheet of A4: 794 x 1123 pixels, 14 mm of them margins."""
    page = show(name, width=794 - 2 * 53)
    page.emulate_media(media="print", color_scheme="dark")
    assert not [item for item in ("nav", "footer", "button") if page.is_visible(item)]
    white = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert white == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    heights = page.evaluate(
        "() => [...document.querySelectorAll('figure, .text, tr')].map((e) => e.offsetHeight)"
    )
    assert heights and max(heights) < 1123 - 2 * 53
    sheets = page.pdf(format="A4", path=tmp_path / "report.pdf").count(b"/Type /Page\n")
    assert 2 <= sheets <= 12
    assert page.evaluate(
        "() => [...document.styleSheets[0].cssRules].some((rule) => rule instanceof CSSPageRule"
        " && rule.style.margin === '14mm')"
    )


@pytest.mark.parametrize("name, scheme", [("pre", "dark"), ("fine", "light")])
def test_accessibility(show, name, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page = show(name, color_scheme=scheme)
    for number in (0, -1):  # one of the plots, and the checksums: all of them would take long
        page.locator("summary").nth(number).click()
    violations = Axe().run(page).response["violations"]
    assert [(v["id"], [n["html"][:200] for n in v["nodes"]][:3]) for v in violations] == []
