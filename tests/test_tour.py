"""The notebook docs/tour.ipynb and the examples of docs/python.md run as they are written.

    python tests/test_tour.py

executes the notebook and stores its outputs in it.
"""

import ast
import contextlib
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from typing import Any

import jax
import numpy as np
import pytest

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
NOTEBOOK = DOCS / "tour.ipynb"


def run_cell(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Executes a cell, and returns its outputs in the form of notebooks."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    # Of a line that is updated in place, the last state.
    text = re.sub(r"[^\n]*\r(?=[^\n])", "", printed.getvalue())
    outputs = []
    if text:
        lines = text.splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    if value is not None:
        data = {"text/plain": [repr(value)]}
        if hasattr(value, "_repr_svg_"):
            data["image/svg+xml"] = value._repr_svg_().splitlines(keepends=True)
        outputs.append(
            {"output_type": "execute_result", "execution_count": number, "data": data}
            | {"metadata": {}}
        )
    return outputs


def execute(notebook: dict[str, Any]) -> None:
    """Executes all code cells in order, and stores their outputs in them."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        cell["outputs"] = run_cell("".join(cell["source"]), names, number)
        cell["execution_count"] = number


def kinds(notebook: dict[str, Any]) -> list[list[str]]:
    """Returns the kinds of the outputs of each cell."""
    return [[o["output_type"] for o in cell.get("outputs", [])] for cell in notebook["cells"]]


@pytest.mark.slow
def test_the_notebook_runs_and_stores_its_outputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stored, notebook = (json.loads(NOTEBOOK.read_text()) for _ in range(2))
    execute(notebook)
    assert kinds(stored) == kinds(notebook)
    text = json.dumps(notebook)
    assert text.count("image/svg+xml") == 3
    assert re.search(r"accuracy (1\.0|0\.9)", text)


def guide_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), re.DOTALL)


def test_the_examples_of_the_guide_fit_the_types_of_the_package(tmp_path):
    (tmp_path / "guide.py").write_text("\n\n".join(guide_blocks()))
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(DOCS.parent)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "guide.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_examples_of_the_guide_run_in_order(tmp_path, monkeypatch):
    import bert_jax
    from bert_jax import api
    from tests import tiny

    pytest.importorskip("sklearn", reason="needs the extra sklearn")
    rng, words = random.Random(0), "moon river stone tree cloud leaf good bad".split()
    lines = [" ".join(rng.choices(words, k=5)) + " ." for _ in range(600)]
    documents = ["\n".join(lines[n : n + 6]) for n in range(0, 600, 6)]
    (tmp_path / "corpus.txt").write_text("\n\n".join(documents))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "new.txt").write_text("\n\n".join(documents[:30]))
    rows = [f"{line}\t{rng.choice(words[-2:])}" for line in lines[:40]]
    (tmp_path / "train.tsv").write_text("\n".join(["text_a\tlabel", *rows]) + "\n")
    rows = [f"{lines[n]}\t{lines[n + 1]}" for n in range(0, 60, 2)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["anchor\tpositive", *rows]) + "\n")
    get_config = bert_jax.get_config
    sizes = {"prng_impl": tiny.PRNG_IMPL, "eval__every": "4", "log__every": "2"}
    corpus = {
        **{"steps": 4, "phases": ((32, 1.0),), "data__vocab": "train:wordpiece"},
        **{"data__line_format": "sentences", "data__num_processes": 1},
        **{f"model__{name}": value for name, value in tiny.SIZES.items()},
        "model__max_position_embeddings": 128,
        "model__num_layers": 1,
    }

    def get_small_config(name, **values):
        small = sizes | (corpus if name == "fast:tiny" else {})
        given = {field: value for field, value in values.items() if field == "data__vocab"}
        return get_config(name, **values | small | given)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "get_config", get_small_config)
    names: dict[str, Any] = {"__name__": "__main__"}
    assert len(blocks := guide_blocks()) == 16
    for number, block in enumerate(blocks):
        exec(compile(block, f"block {number}", "exec"), names)
    assert names["similarity"].shape == (2, 2) and names["hidden"].shape[0] == 40
    assert len(names["candidates"][0][0]) == 5
    vectors = names["near"].encode(names["texts"], dimensions=8)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    before = jax.tree.leaves(names["params"]["encoder"]["bert"]["embeddings"])
    after = jax.tree.leaves(names["frozen"]["encoder"]["bert"]["embeddings"])
    assert all(map(np.array_equal, before, after))
    for adapted in ("fitted", "frozen", "adapted_params"):
        assert names["loss_of"](names[adapted]) < names["loss_of"](names["params"]), adapted
    assert names["model"].history["z_loss"].shape == (2,)
    assert names["classifier"].classes_.tolist() == ["bad", "good"]
    assert names["frame"].columns.tolist() == ["text", "rated", "label", "bad", "good"]


if __name__ == "__main__":
    content = json.loads(NOTEBOOK.read_text())
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        execute(content)
        os.chdir(before)
    NOTEBOOK.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
