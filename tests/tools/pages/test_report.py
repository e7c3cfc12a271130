"""Reports of runs: well formed, escaped, deterministic, with the numbers of metrics.jsonl."""

import functools
import json
import pathlib
import re
import shutil

import pytest

from bert_jax.tools.report.report import report, write_report
from docs import pictures
from tests.tools.pages.made_runs import (
    HOSTILE,
    STATISTICS,
    figure_of,
    points_of,
    read_page,
    table_of,
    write_finetuning,
    write_pretraining,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, pathlib.Path]:
    """A run on a corpus, another one, and one with three seeds; the names are hostile."""
    root = tmp_path_factory.mktemp("runs")
    name = HOSTILE.replace("/", "_")
    made = {"pre": root / name, "more": root / "more", "fine": root / f"fine{name}"}
    write_pretraining(made["pre"])
    write_pretraining(made["more"], steps=300, rate=2e-3)
    write_finetuning(made["fine"])
    return made


@pytest.fixture(scope="module")
def root(folders):
    """Returns the function (names of folders) -> the report of them, read; each is made once."""

    @functools.cache
    def root(*names: str):
        return read_page(report([str(folders[name]) for name in names]))

    return root


@pytest.mark.parametrize("names", [["pre"], ["fine"], ["pre", "more", "fine"]])
def test_a_page_is_well_formed_and_escaped_and_asks_nothing_of_a_network(folders, names):
    page = report([str(folders[name]) for name in names])
    root = read_page(page)
    (script,) = root.find("script")
    assert HOSTILE in root.text and "alert" not in script.text
    assert not [name for name in ("link", "iframe", "img", "object") if list(root.find(name))]
    assert not re.search(r"<[^>]* on\w+=", re.sub(r'"[^"]*"', "", page))
    links = {a.attributes["href"] for a in root.find("a")}
    assert links == {f"#{heading.attributes['id']}" for heading in root.find("h2")}
    found = set(re.findall(r"[\w+.-]+://[^\s\"'<]*", page))
    assert found == {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert "url(" not in page and "@import" not in page


def test_curves_are_the_numbers_of_the_run(tmp_path):
    rows = write_pretraining(tmp_path / "run")
    figure = figure_of(read_page(report([str(tmp_path / "run")])), "Masked tokens: loss (nats)")
    for axis in ("steps", "tokens", "seconds"):
        lines = zip(("validation", "train"), points_of(figure, axis), strict=True)
        for split, found in lines:
            wanted = [row for row in rows if row["split"] == split]
            x = [row["step"] if axis == "steps" else row["speed"][axis] for row in wanted]
            assert [point[0] for point in found] == pytest.approx(x, rel=0.01)
            y = [row["masked_lm_loss"] for row in wanted]
            assert [point[1] for point in found] == pytest.approx(y, abs=0.01)
    header, *cells = table_of(figure)
    assert header == ["line", "steps", "tokens", "seconds", "value"]
    names = {"train": "training", "validation": "held-out"}
    wanted = {(names[row["split"]], row["step"]): row for row in rows}
    assert len(cells) == len(rows)
    for name, step, tokens, seconds, value in cells:
        row = wanted[name, int(step)]
        assert float(value) == pytest.approx(row["masked_lm_loss"], rel=1e-5)
        assert int(tokens) == row["speed"]["tokens"]
        assert float(seconds) == pytest.approx(row["speed"]["seconds"], rel=1e-5)


def test_levels_and_marks(root):
    levels = {
        title: [t.text for t in figure_of(root("pre"), title).find("text", class_="level")]
        for title in ("Masked tokens: loss (nats)", "Masked tokens: accuracy", "Loss (nats)")
    }
    assert levels == {
        "Masked tokens: loss (nats)": [f"unigram entropy {STATISTICS['unigram_entropy']:g}"],
        "Masked tokens: accuracy": ["most frequent token 6.2%"],
        "Loss (nats)": ["unigram entropy + pairs 6.94"],  # 6.25 and the entropy of a fair coin
    }
    figure = figure_of(root("pre"), "Learning rate")
    (group,) = figure.find("g", data_axis="steps")
    tips = [path.attributes["data-tip"] for path in group.find("path", class_="target")]
    assert tips == [
        "resumed after step 200",
        "phase of 128 tokens after step 540",
        "step 300 was not finite: not applied",
    ]


def test_changed_settings_are_listed_beside_the_defaults(root):
    (table,) = (t for t in root("pre").find("table") if "Changed settings" in t.text)
    rows = [[cell.text for cell in row.children] for row in table.find("tr")]
    assert rows == [
        ["field", "value", "default", "from"],
        ["data.source", f"text:{HOSTILE}", "installed_docs", "given"],
        ["optimizer.learning_rate", "0.0005", "0.0001", ""],
        ["phases", "[[64, 0.9], [128, 0.1]]", "[[128, 0.9], [512, 0.1]]", ""],
    ]


def test_a_comparison_lists_what_differs(root):
    (table,) = (t for t in root("pre", "more").find("table") if "Settings that differ" in t.text)
    rows = [[cell.text for cell in row.children] for row in table.find("tr")]
    assert rows[1:] == [["optimizer.learning_rate", "0.0005", "0.002"]]
    figure = figure_of(root("pre", "more"), "Masked tokens: loss (nats), held-out")
    assert [len(line) for line in points_of(figure, "steps")] == [6, 3]


def test_scores_over_seeds(root):
    figure = figure_of(root("fine"), "Accuracy")
    header, *rows = table_of(figure)
    assert header == ["name", "run", "value", "paper", "constant prediction"]
    assert [row[1:] for row in rows] == [
        ["seed-0", "0.8", "0.85", "0.6"],
        ["seed-1", "0.81", "0.85", "0.6"],
        ["seed-2", "0.82", "0.85", "0.6"],
    ]
    assert "0.81 ± 0.01" in figure.text
    assert f"Paper: Table 5 {HOSTILE}." in figure.text


def test_spans_of_gold_and_predictions(root):
    (error,) = root("fine").find("div", class_="text")
    marks = [(m.attributes.get("class", ""), m.text) for m in error.find("mark")]
    assert marks == [("", "AnnaPER"), ("gold wrong", "GreenLOC"), ("wrong", " Gables→ ORG")]


def test_a_long_run_stays_below_a_megabyte(tmp_path):
    write_pretraining(tmp_path / "run", steps=1_000_000, every=500)
    page = report([str(tmp_path / "run")])
    assert len(page.encode()) < 850_000  # of the megabyte that a page may have
    figure = figure_of(read_page(page), "Norm of the gradient")
    (line,) = points_of(figure, "steps")
    assert 300 <= len(line) <= 600
    assert "mean of several reports" in figure.text


def test_a_run_that_has_just_begun(tmp_path):
    write_pretraining(tmp_path / "run", steps=20)
    path = tmp_path / "run" / "metrics.jsonl"  # of steps that were not finite
    path.write_text(path.read_text().replace('"gradient_norm": 1.05', '"gradient_norm": null'))
    read_page(report([str(tmp_path / "run")]))
    for name in ("metrics.jsonl", "starts.jsonl", "evaluation.json", "data/manifest.json"):
        (tmp_path / "run" / name).unlink()
        read_page(report([str(tmp_path / "run")]))
    (tmp_path / "run" / "results.json").write_text("{}x")
    line = write_report(str(tmp_path / "run"))
    assert line.startswith("report     not written: JSONDecodeError: ") and "\n" not in line
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_loss_of_one_term_is_shown_once(folders, tmp_path):
    folder = shutil.copytree(folders["more"], tmp_path / "run")
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    names = lambda: [dt.text for dt in read_page(report([str(folder)])).find("dt")]  # noqa: E731
    assert {"Loss (nats)", "Masked tokens: loss (nats)"} <= set(names())
    for row in rows:
        del row["next_sentence_loss"]
        row["loss"] = row["masked_lm_loss"]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert "Masked tokens: loss (nats)" in names() and "Loss (nats)" not in names()


def test_where_the_time_went(root):
    """60 of 100 seconds trained; runs without the file have no such part."""
    page = root("pre")
    facts = [(dt.text, dd.text) for dt, dd in zip(page.find("dt"), page.find("dd"), strict=True)]
    assert ("goodput", "60%") in facts
    sections = {next(s.find("h2")).text: s for s in page.find("section")}
    shown = dict(zip(*table_of(sections["Time"]), strict=True))
    assert (shown["training"], shown["other"], shown["lost"]) == ("60.0%", "20.0%", "0.0%")
    assert (shown["wall time"], shown["starts"]) == ("1:40", "1")
    assert "goodput" not in [dt.text for dt in root("fine").find("dt")]


def test_labels_in_the_picture_of_a_report_are_those_of_today(root):
    labels = pictures.labels_of(str(pathlib.Path(pictures.__file__).with_name("report.png")))
    of_this_run = {"quickstart", "MLM accuracy", "always '.'", "Masked tokens: bits per character"}
    page = root("pre").text
    assert len(labels) > 15
    assert not [label for label in labels if label not in page and label not in of_this_run]
