"""Results and tables against values that were computed by hand."""

import json
import math

import pytest

from bert_jax.tools.sweep import record, report
from bert_jax.tools.sweep.jobs import Job
from bert_jax.tools.sweep.plan import Column, Table
from tests.tools.sweep.conftest import plan_of

F1 = Column("ner", "f1", "NER")
LOSS = Column("pretraining", "masked_lm_loss", "loss", 1.0, True)
SYSTEMS = {"bert": "BERT", "ltr": "LTR", "gpt": "GPT"}
PAPER = {"bert": {"NER": 96.4}, "ltr": {"NER": 90.0}}


def item(system, task, seed=0, **metrics):
    cost = {"steps": 100, "parameters": 5000, "seconds": 30.0 * (seed + 1), "tokens": 3200}
    name = f"{system}-{task}-{seed}"
    return {"name": name, "system": system, "task": task, "seed": seed, "metrics": metrics, **cost}


# Standard deviations: of (0.8, 0.82, 0.84) it is 0.02, of (0.7, 0.71, 0.72) it is 0.01.
RESULTS = [
    *(item("bert", "ner", i, f1=x) for i, x in enumerate((0.80, 0.82, 0.84))),
    *(item("ltr", "ner", i, f1=x) for i, x in enumerate((0.70, 0.71, 0.72))),
    item("bert", "pretraining", masked_lm_loss=2.5),
    item("ltr", "pretraining", masked_lm_loss=2.25),
]
# t = 0.11 / sqrt(0.0004 / 3 + 0.0001 / 3) = 8.520, with 2.941 degrees of freedom: p = 0.0037.
EXPECTED = """# A sweep

8 of 0 runs are complete. Made by hand.

## Systems

|      | NER                  | paper | loss         |
| ---- | -------------------- | ----- | ------------ |
| BERT | **82.00 ± 2.00 (3)** | 96.4  | 2.50 (1)     |
| LTR  | 71.00 ± 1.00 (3)     | 90    | **2.25 (1)** |
| GPT  | -                    |       | -            |

A note.

| compared   | task | difference | p     |                      |
| ---------- | ---- | ---------- | ----- | -------------------- |
| LTR - BERT | NER  | -11.00     | 0.004 | * exceeds the spread |
| LTR - BERT | loss | -0.25      |       | not testable         |

p is that of Welch's test, two-sided, over seeds. If no system differed, about 0.1 of the 1 tests
would have p < 0.05 by chance. With one seed there is no spread to compare a difference with. With
fewer than 5 seeds the test finds large differences only: 'within the spread' does not mean that two
systems are equal. Seeds of fine-tuning that start from the same pre-trained model do not show how
much another pre-training would differ.

## Runs

| system | task        | runs | parameters | steps | tokens a run | time a run |
| ------ | ----------- | ---- | ---------- | ----- | ------------ | ---------- |
| bert   | ner         | 3    | 5,000      | 100   | 3,200        | 1:00       |
| ltr    | ner         | 3    | 5,000      | 100   | 3,200        | 1:00       |
| bert   | pretraining | 1    | 5,000      | 100   | 3,200        | 0:30       |
| ltr    | pretraining | 1    | 5,000      | 100   | 3,200        | 0:30       |
"""


def markdown(*columns: Column, found=RESULTS, **fields) -> str:
    return report.markdown(plan_of(tables=[Table("Systems", SYSTEMS, columns, **fields)]), found)


def test_the_report_is_that_computed_by_hand():
    assert markdown(F1, LOSS, paper=PAPER, mark_best=True, note="A note.") == EXPECTED


def test_references_unknown_scores_and_small_differences():
    found = markdown(F1, Column("ner", "f2"), reference={"bert": "ltr"})
    assert "| BERT - LTR | NER  | +11.00 " in found and "| LTR - " not in found
    assert "No run of ner has the score 'f2'; there are: f1." in found
    assert "compared" not in markdown(F1, reference={})
    scores = [item("bert", "ner", i, f1=x) for i, x in enumerate((0.5, 0.6))]
    scores += [item("ltr", "ner", i, f1=x) for i, x in enumerate((0.52, 0.61))]
    # t = 0.015 / sqrt(0.005 / 2 + 0.00405 / 2) = 0.223 with 1.978 degrees of freedom.
    expected = "| LTR - BERT | NER  | +1.50      | 0.844 | within the spread |"
    assert expected in markdown(F1, found=scores)


# -------------------------------------------------------------------------------------- results

SPEED = [{"seconds": x, "tokens": y} for x, y in ((5.0, 500), (10.0, 1500), (10.5, 1500))]
ROWS = [
    {"step": 10, "split": "train", "speed": SPEED[0]},
    {"step": 10, "split": "validation", "loss": 9.0, "masked_lm_loss": 9.0},
    {"step": 30, "split": "train", "speed": SPEED[1]},
    {"step": 30, "split": "validation", "loss": 3.0, "masked_lm_loss": 2.0, "speed": SPEED[2]},
]


def test_results_are_those_of_the_last_evaluation_or_of_the_chosen_checkpoint(tmp_path):
    workdir = str(tmp_path)
    made = [Job(x, "train", "", {}, {}, system="bert", task="t", seed=3) for x in "abc"]
    for job in made:
        folder = record.folder_of(job.name, workdir)
        folder.mkdir(parents=True)
        # A killed process may leave an incomplete line.
        text = "".join(json.dumps(row) + "\n" for row in ROWS) + '{"ste'
        (folder / "metrics.jsonl").write_text(text)
        rows = [[path, "x", "float32", "()", size] for path, size in (("a", 1000), ("b", 7))]
        (folder / "parameters.json").write_text(json.dumps(rows))
    for name in "bc":
        record.mark_finished(name, workdir, 1.0)
    (record.folder_of("c", workdir) / "results.json").write_text(
        json.dumps({"eval": {"f1": 0.75}, "step": 4})
    )
    corpus, finetuning = record.collect(plan_of(*made), workdir)
    perplexity = pytest.approx(math.e**2)
    assert corpus == {
        **{"name": "b", "system": "bert", "task": "t", "seed": 3},
        "metrics": {"loss": 3.0, "masked_lm_loss": 2.0, "masked_lm_perplexity": perplexity},
        **{"steps": 30, "parameters": 1007, "seconds": 10.5, "tokens": 1500},
    }
    assert (finetuning["name"], finetuning["metrics"]) == ("c", {"f1": 0.75})
