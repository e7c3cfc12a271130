"""Results and tables against values that were computed by hand."""

import json
import math

import pytest

from bert_jax.tools.sweep import record, report, results
from bert_jax.tools.sweep.plan import Column, Table
from tests.tools.sweep.conftest import plan_of, script

F1 = Column("ner", "f1", "NER")
LOSS = Column("pretraining", "masked_lm_loss", "loss", 1.0, True)
TABLE = Table(
    "Systems",
    {"bert": "BERT", "ltr": "LTR", "gpt": "GPT"},
    (F1, LOSS),
    {("bert", "NER"): 96.4, ("ltr", "NER"): 90.0},
    note="A note.",
)


def item(system, task, seed=0, **metrics):
    return {
        "name": f"{system}-{task}-{seed}",
        "system": system,
        "task": task,
        "seed": seed,
        "metrics": metrics,
        "steps": 100,
        "parameters": 5000,
        "seconds": 30.0 * (seed + 1),
        "tokens": 3200,
    }


# Standard deviations: of (0.8, 0.82, 0.84) it is 0.02, of (0.7, 0.71, 0.72) it is 0.01.
RESULTS = [
    *(item("bert", "ner", i, f1=x) for i, x in enumerate((0.80, 0.82, 0.84))),
    *(item("ltr", "ner", i, f1=x) for i, x in enumerate((0.70, 0.71, 0.72))),
    item("bert", "pretraining", masked_lm_loss=2.5),
    item("ltr", "pretraining", masked_lm_loss=2.25),
]
# t = 0.11 / sqrt(0.0004 / 3 + 0.0001 / 3) = 8.520, with 2.941 degrees of freedom: p = 0.0037.
EXPECTED = """# A sweep

8 of 0 runs are complete. 

## Systems

|  | NER | paper | loss |
| --- | --- | --- | --- |
| BERT | 82.00 ± 2.00 (3) | 96.4 | 2.50 (1) |
| LTR | 71.00 ± 1.00 (3) | 90 | 2.25 (1) |
| GPT | - |  | - |

A note.

| compared | task | difference | p |  |
| --- | --- | --- | --- | --- |
| LTR - BERT | NER | -11.00 | 0.004 | * exceeds the spread |
| LTR - BERT | loss | -0.25 |  | not testable |
"""


def test_the_report_is_that_computed_by_hand():
    found = report.markdown(plan_of(tables=(TABLE,)), RESULTS)
    assert found.startswith(EXPECTED)
    assert "about 0.1 of the 1 tests would have p < 0.05 by chance" in found
    assert "With one seed there is no spread" in found
    assert "'within the spread' does not mean that two systems are equal" in found
    assert "| bert | ner | 3 | 5,000 | 100 | 3,200 | 1:00 |" in found


def test_the_terminal_has_aligned_columns_without_marks():
    lines = report.terminal(plan_of(tables=(TABLE,)), RESULTS).splitlines()
    assert "BERT  82.00 ± 2.00 (3)  96.4   2.50 (1)" in lines
    assert not any("|" in line or "#" in line for line in lines)
    assert max(map(len, lines)) <= 100


def test_each_row_can_have_its_own_reference():
    table = Table("T", {"bert": "BERT", "ltr": "LTR"}, (F1,), reference={"bert": "ltr"})
    found = report.markdown(plan_of(tables=(table,)), RESULTS)
    assert "| BERT - LTR | NER | +11.00 |" in found and "| LTR - " not in found
    alone = Table("T", {"bert": "BERT", "ltr": "LTR"}, (F1,), reference={})
    assert "compared" not in report.markdown(plan_of(tables=(alone,)), RESULTS)


def test_the_best_of_a_column_is_marked_highest_or_lowest():
    table = Table("T", {"bert": "B", "ltr": "L"}, (F1, LOSS), mark_best=True, reference={})
    found = report.markdown(plan_of(tables=(table,)), RESULTS)
    assert "| B | **82.00 ± 2.00 (3)** | 2.50 (1) |" in found
    assert "| L | 71.00 ± 1.00 (3) | **2.25 (1)** |" in found
    assert "**" not in report.terminal(plan_of(tables=(table,)), RESULTS)


def test_a_score_that_no_run_has_is_reported():
    table = Table("T", {"bert": "B"}, (Column("ner", "f2"),))
    found = report.markdown(plan_of(tables=(table,)), RESULTS)
    assert "No run of ner has the score 'f2'; there are: f1." in found


def test_small_differences_are_within_the_spread():
    scores = [item("a", "t", i, f1=x) for i, x in enumerate((0.5, 0.6))]
    scores += [item("b", "t", i, f1=x) for i, x in enumerate((0.52, 0.61))]
    table = Table("T", {"a": "A", "b": "B"}, (Column("t", "f1"),))
    found = report.markdown(plan_of(tables=(table,)), scores)
    # t = 0.015 / sqrt(0.005 / 2 + 0.00405 / 2) = 0.223 with 1.978 degrees of freedom.
    assert "| B - A | t | +1.50 | 0.844 | within the spread |" in found


# -------------------------------------------------------------------------------------- results


def make_run(workdir, name, rows, eval=None, log="7 parameters\n"):
    job = script(name)
    for field, value in {"kind": "train", "system": "bert", "task": "t", "seed": 3}.items():
        object.__setattr__(job, field, value)
    folder = record.folder_of(name, workdir)
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "log.txt").write_text(log)
    if eval:
        (folder / "results.json").write_text(json.dumps({"eval": eval, "step": 4}))
    return job


ROWS = [
    {"step": 10, "split": "train", "speed": {"seconds": 5.0, "tokens": 500}},
    {"step": 10, "split": "validation", "loss": 9.0, "masked_lm_loss": 9.0},
    {"step": 30, "split": "train", "speed": {"seconds": 10.0, "tokens": 1500}},
    {
        "step": 30,
        "split": "validation",
        "loss": 3.0,
        "masked_lm_loss": 2.0,
        "speed": {"seconds": 10.5, "tokens": 1500},
    },
]


def test_time_and_tokens_are_those_of_the_updates():
    assert results.training_cost(ROWS) == (10.5, 1500)
    assert results.training_cost(ROWS[1:2]) == (0, 0)


def test_a_corpus_has_the_metrics_of_its_last_evaluation(tmp_path):
    job = make_run(tmp_path, "a", ROWS)
    found = results.result(job, str(tmp_path))
    assert found == {
        "name": "a",
        "system": "bert",
        "task": "t",
        "seed": 3,
        "metrics": {
            "loss": 3.0,
            "masked_lm_loss": 2.0,
            "masked_lm_perplexity": pytest.approx(math.e**2),
        },
        "steps": 30,
        "parameters": 7,
        "seconds": 10.5,
        "tokens": 1500,
    }


def test_a_finetuning_has_the_scores_of_its_chosen_checkpoint(tmp_path):
    job = make_run(tmp_path, "a", ROWS, eval={"f1": 0.75})
    assert results.result(job, str(tmp_path))["metrics"] == {"f1": 0.75}


def test_only_complete_runs_have_results(tmp_path):
    jobs = [make_run(tmp_path, name, ROWS) for name in "ab"]
    record.mark_finished(jobs[1], str(tmp_path), 1.0)
    found = results.collect(plan_of(*jobs), str(tmp_path))
    assert [result["name"] for result in found] == ["b"]
    results.write(found, str(tmp_path))
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["b"]
