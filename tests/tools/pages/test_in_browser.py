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
    """A report of a pre-training and of a fine-tuning, and a page of long words."""
    root = tmp_path_factory.mktemp("reports")
    write_pretraining(root / "pre", every=60)  # few rows: a check of every cell is slow
    write_finetuning(root / "fine")
    found = {}
    for name in ("pre", "fine"):
        found[name] = root / f"{name}.html"
        found[name].write_text(report([str(root / name)]), encoding="utf-8")
    (root / "long.html").write_text(_long_words(), encoding="utf-8")
    return found | {"long": root / "long.html"}


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


def test_a_phone_shows_everything(show):
    page = show("long", width=380)
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


def test_accessibility(show):
    from axe_playwright_python.sync_playwright import Axe

    page = show("fine", color_scheme="light")
    for number in (0, -1):  # one of the plots, and the checksums: all of them would take long
        page.locator("summary").nth(number).click()
    violations = Axe().run(page).response["violations"]
    assert [(v["id"], [n["html"][:200] for n in v["nodes"]][:3]) for v in violations] == []
