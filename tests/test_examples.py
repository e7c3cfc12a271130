"""The files of examples/ run as they are written, on small data, and do what they say.

Each runs in this process, in an empty folder; its names afterwards are what is looked at.
"""

import ast
import pathlib
import random
import re
import runpy
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pandas
import pytest

import bert_jax
from bert_jax import api
from tests import tiny

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
WORDS = "moon river stone tree cloud leaf sand hill".split()
FILLERS = ("good", "bad", "a good", "a bad")
MAX_LINES = 120
SMALL = {
    **{"prng_impl": tiny.PRNG_IMPL, "phases": ((32, 1.0),), "global_batch_size": 16},
    **{"data__num_processes": 1, "data__max_examples_per_row": 1},
    **{f"model__{name}": size for name, size in tiny.SIZES.items()},
}


def run(name: str, *words: Any) -> dict[str, Any]:
    """Runs an example with a command line, and returns its names."""
    path = REPOSITORY / "examples" / f"{name}.py"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(path), *map(str, words)])
        return runpy.run_path(str(path), run_name="__main__")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> dict[str, Any]:
    """The names of pretrain.py after a small run; `workdir` is the folder."""
    folder, rng = tmp_path_factory.mktemp("pretrained"), random.Random(0)
    documents = (" ".join([word] * rng.randint(3, 9)) for word in rng.choices(WORDS, k=400))
    (folder / "corpus.txt").write_text("\n\n".join(f"a good or bad {text}." for text in documents))
    get_config = bert_jax.get_config
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small = lambda name, **values: get_config(name, **values | SMALL)  # noqa: E731
        patch.setattr(api, "get_config", small)
        fill = ("--fill", "a good or bad moon moon [MASK] moon moon.")
        names = run("pretrain", "corpus.txt", "--steps=60", "--workdir=run", *fill)
    return names | {"workdir": folder / "run"}


@pytest.fixture
def reviews(tmp_path, monkeypatch) -> str:
    """The name of a file of reviews in the current folder, with the index that pandas writes."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    labels = [rng.choice(["good", "bad"]) for _ in range(160)]
    texts = [f"{' '.join(rng.choices(WORDS, k=2))} {f'{label} ' * 4}" for label in labels]
    pandas.DataFrame({"review": texts, "sentiment": labels}).to_csv("reviews.csv")
    return "reviews.csv"


def accuracies(shown: str) -> list[float]:
    return [float(number) for number in re.findall(r"accuracy ([\d.]+)", shown)]


COLUMNS = ("--text=review", "--label=sentiment")


def test_pretraining_learns_and_fills_in(pretrained):
    history = pretrained["model"].history
    assert history["validation_step"].tolist() == [30, 60]
    assert history["loss"][-1] < history["loss"][0] - 0.5
    assert pretrained["candidates"][0]["token"] == "moon"


def test_a_loop_of_ones_own_learns_and_is_saved(pretrained, reviews, capsys):
    words = (reviews, *COLUMNS, f"--model={pretrained['workdir']}", "--freeze", "embeddings")
    names = run("finetune_loop", *words, "--epochs=8", "--learning_rate=0.01")
    assert accuracies(capsys.readouterr().out)[-1] > 0.9
    # What was loaded is what was trained; what is frozen has not moved.
    before, params = bert_jax.load(pretrained["workdir"]).params, names["params"]["encoder"]
    jax.tree.map(np.testing.assert_array_equal, names["model"].params, params)
    frozen = [tree["bert"]["embeddings"] for tree in (before, params)]
    jax.tree.map(np.testing.assert_array_equal, *frozen)
    kernels = [tree["bert"]["encoder"]["layer_0"]["output"]["kernel"] for tree in (before, params)]
    assert not np.array_equal(*kernels)
    with pytest.raises(SystemExit):
        run("finetune_loop", *words)
    assert "runs/loop exists" in capsys.readouterr().err


def test_lora_learns_and_changes_queries_and_values_only(pretrained, reviews, capsys):
    words = (reviews, *COLUMNS, f"--model={pretrained['workdir']}", "--epochs=8")
    names = run("lora", *words, "--learning_rate=0.02")
    assert accuracies(capsys.readouterr().out)[-1] > 0.9
    trees = names["model"].params, names["merged"].params
    pairs = zip(*map(jax.tree_util.tree_leaves_with_path, trees), strict=True)
    for (path, before), (_, after) in pairs:
        is_target = re.search("'(query|value)'.*'kernel'", jax.tree_util.keystr(path))
        assert np.array_equal(before, after) == (not is_target), path


def test_retrieval_finds_the_passage_of_a_question(pretrained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"{word} or a {word}\t{more} {word} {word}" for word in WORDS for more in FILLERS]
    (tmp_path / "pairs.tsv").write_text("\n".join(["anchor\tpositive", *rows]) + "\n")
    words = ("pairs.tsv", f"--model={pretrained['workdir']}", "--ask", "moon or a moon")
    names = run("retrieval", *words, "--epochs=10")
    assert names["model"].history["validation_mrr_at_10"].size >= 2
    found = names["index"]["passages"][names["row"].argsort()[::-1][: len(FILLERS)]]
    assert all("moon" in passage for passage in found)
    first = capsys.readouterr().out
    run("retrieval", *words, "--epochs=10")  # the run is complete: only searches
    assert capsys.readouterr().out.splitlines()[-3:] == first.splitlines()[-3:]


@pytest.mark.parametrize("name", ["finetune_loop", "lora", "retrieval"])
def test_a_column_that_is_missing_is_named(name, reviews, capsys):
    with pytest.raises(SystemExit):
        run(name, reviews)
    assert "columns of ['', 'review', 'sentiment']" in capsys.readouterr().err


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short_and_use_nothing_private(path):
    text = path.read_text()
    assert text.count("\n") <= MAX_LINES
    attributes = [n.attr for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Attribute)]
    assert [name for name in attributes if name.startswith("_")] == []


def test_they_run_as_modules_too():
    command = [sys.executable, "-m", "examples.pretrain", "--help"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert "python examples/pretrain.py corpus.txt" in done.stdout
