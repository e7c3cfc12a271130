"""Linear classifiers of frozen vectors, compared with scikit-learn's on the same vectors."""

import json
import pathlib
import random

import numpy as np
import pytest

import bert_jax
from bert_jax.files.errors import UserError
from bert_jax.tools.cli import command_line, probe
from tests.inference.conftest import WORDS

WHOLE = [word for word in WORDS if word.isalpha()]


def make_rows(count: int, seed: int) -> list[tuple[str, str]]:
    """Returns texts, and whether they have a certain word."""
    rng = random.Random(seed)
    texts = [rng.choices(WHOLE, k=rng.randint(2, 9)) for _ in range(count)]
    return [(" ".join(words), "up" if "naive" in words else "down") for words in texts]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A set of SentEval, with a class in its test part that no training text has, and a table."""
    path = tmp_path_factory.mktemp("probes")
    parts = (("tr", make_rows(150, 1)), ("va", make_rows(9, 2)), ("te", make_rows(60, 3)))
    rows = [f"{part}\t{label}\t{text}\n" for part, found in parts for text, label in found]
    (path / "order.txt").write_text("".join([*rows, "te\tnew\tthe list\n"]))
    lines = [json.dumps({"text": text, "label": label}) for text, label in make_rows(100, 4)]
    (path / "table.jsonl").write_text("\n".join(lines))
    return path


def test_accuracies_are_those_of_scikit_learn(workdir, folder):
    sklearn = pytest.importorskip("sklearn.linear_model")
    model = bert_jax.load(workdir)
    order, table = bert_jax.probe(model, folder)
    assert (order.name, order.classes, order.train, order.test) == ("order", 2, 150, 61)
    assert (table.name, table.train + table.test) == ("table", 100)
    train, test = make_rows(150, 1), [*make_rows(60, 3), ("the list", "new")]
    texts, labels = zip(*train, *test, strict=True)
    assert len(order.layers) == model.encoder.num_layers + 1
    for layer, accuracy in enumerate(order.layers):
        x = model.encode(texts, "mean", layer=layer, normalize=False).astype(float)
        x = (x - x[:150].mean(0)) / x[:150].std(0)
        theirs = sklearn.LogisticRegression(max_iter=1000).fit(x[:150], labels[:150])
        right = theirs.predict(x[150:]) == np.array(labels[150:])
        assert accuracy == pytest.approx(right.mean(), abs=0.02)
    most = max(("up", "down"), key=labels[:150].count)
    assert order.constant == labels[150:].count(most) / 61
    assert max(order.layers) > order.constant + 0.1


def test_a_part_of_a_file_has_all_classes_although_they_come_in_turn(workdir, tmp_path):
    rows = [f"{'abcd'[n % 4]},{text}\n" for n, (text, _) in enumerate(make_rows(80, 5))]
    (tmp_path / "turns.csv").write_text("".join(["label,text\n", *rows]))
    [found] = bert_jax.probe(bert_jax.load(workdir), tmp_path / "turns.csv", max_texts=40)
    assert (found.classes, found.train + found.test) == (4, 40)


def test_files_that_cannot_be_probed(workdir, folder, tmp_path):
    model = bert_jax.load(workdir)
    with pytest.raises(UserError, match="has no files that end in .csv"):
        bert_jax.probe(model, tmp_path)
    (tmp_path / "a.txt").write_text("tr\tup\tthe list\nte\tup\tthe list\n")
    with pytest.raises(UserError, match="has 1 classes in 1 texts to learn from, and 1 other"):
        bert_jax.probe(model, tmp_path)
    (tmp_path / "a.txt").unlink()
    rows = [f"{text},{number / 7}" for number, (text, _) in enumerate(make_rows(40, 1))]
    (tmp_path / "a.csv").write_text("text,score\n" + "\n".join(rows))
    with pytest.raises(UserError, match="so these are not class labels"):
        bert_jax.probe(model, tmp_path / "a.csv")


def test_the_command_prints_a_row_and_the_report_has_the_curve(workdir, folder, tmp_path, capsys):
    output = tmp_path / "probes.jsonl"
    words = [str(folder), f"--model={workdir}", "--max_texts=40", f"--output={output}"]
    probe.run(command_line.parse("probe", "", probe.FLAGS, words))
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["name"] for row in rows] == ["order", "table"]
    assert [(row["train"], row["test"]) for row in rows] == [(40, 40), (32, 8)]
    assert (
        f"order                         40 {rows[0]['constant']:>9.1%}" in capsys.readouterr().out
    )
    words = [str(folder / "table.jsonl"), f"--model={workdir}"]
    probe.run(command_line.parse("probe", "", probe.FLAGS, words))
    page = pathlib.Path(workdir, "report.html").read_text()  # has both files
    assert "table: 20 texts, 2 classes" in page
    assert "What the layers know" in page and "order: 40 texts, 2 classes" in page
