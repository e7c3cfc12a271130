"""The page of a sweep: its tables, points over seeds, varied fields, links to reports of runs."""

import json

import pytest

from bert_jax.tools.sweep import record
from bert_jax.tools.sweep.jobs import Job
from bert_jax.tools.sweep.page import sweep_page
from bert_jax.tools.sweep.plan import Column, Table
from tests.tools.pages.made_runs import HOSTILE, figure_of, points_of, read_page, table_of
from tests.tools.sweep.conftest import plan_of

RATES, SEEDS = (1e-4, 3e-4), (0, 1)
TABLE = Table(
    HOSTILE,
    {f"rate{rate}": f"{HOSTILE} {rate}" for rate in RATES},
    (Column("ner", "f1", "NER"),),
    {f"rate{RATES[0]}": {"NER": 96.4}},
)


def score(rate: float, seed: int) -> float:
    return 0.8 + 1000 * rate / 4 + seed / 50


@pytest.fixture
def workdir(tmp_path) -> str:
    """A sweep of two rates and two seeds, one run of which is not complete."""
    jobs = []
    for rate in RATES:
        for seed in SEEDS:
            settings = {"optimizer": {"learning_rate": rate}, "seed": seed, "init_from": "BERT"}
            name = f"rate{rate}-{seed}"
            more = {"system": f"rate{rate}", "task": "ner", "seed": seed}
            jobs.append(Job(name, "train", "configs/ner.py", {}, settings, **more))
            folder = record.folder_of(name, str(tmp_path))
            folder.mkdir(parents=True)
            results = {"eval": {"f1": score(rate, seed)}}
            (folder / "results.json").write_text(json.dumps(results))
            if (rate, seed) != (RATES[1], 1):
                record.mark_finished(name, str(tmp_path), 1.0)
    plan = plan_of(*jobs, tables=(TABLE,), title=HOSTILE, note=HOSTILE, source=HOSTILE)
    record.save_plan(plan, str(tmp_path))
    (record.folder_of("rate0.0001-0", str(tmp_path)) / "report.html").write_text("")
    return str(tmp_path)


def test_the_tables_and_points_are_those_of_the_complete_runs(workdir):
    root = read_page(sweep_page(workdir))
    assert not list(root.find("img")) and len(list(root.find("script"))) == 1
    assert "3 of 4 runs are complete." in root.text
    table = next(root.find("table"))
    rows = [[cell.text for cell in row.children] for row in table.find("tr")]
    assert rows == [
        ["system", "NER", "paper"],
        [f"{HOSTILE} 0.0001", "83.50 ± 1.41 (2)", "96.4"],  # 82.5 and 84.5
        [f"{HOSTILE} 0.0003", "87.50 (1)", ""],
    ]
    points = table_of(figure_of(root, "NER: F1"))[1:]
    assert [row[1:4] for row in points] == [
        ["rate0.0001-0", "82.5", "96.4"],
        ["rate0.0001-1", "84.5", "96.4"],
        ["rate0.0003-0", "87.5", ""],
    ]
    links = [a.attributes["href"] for a in root.find("a") if "#" not in a.attributes["href"]]
    assert links == ["runs/rate0.0001-0/report.html"]


def test_a_field_that_varies_has_a_plot_of_means(workdir):
    figure = figure_of(read_page(sweep_page(workdir)), "NER: F1 by optimizer.learning_rate")
    (means,) = points_of(figure, "optimizer.learning_rate")
    assert means == [pytest.approx((1e-4, 83.5), rel=1e-3), pytest.approx((3e-4, 87.5), rel=1e-3)]
    assert [row[2] for row in table_of(figure)[1:]] == ["82.5", "84.5", "87.5", "83.5", "87.5"]
    # The ticks are the values that were chosen.
    labels = [text.text for text in figure.find("text")]
    assert labels[labels.index("optimizer.learning_rate") - 2 :][:2] == ["1e-4", "3e-4"]
