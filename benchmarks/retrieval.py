"""Trains all kinds of retrieval models on the same pairs, and prints how well each one finds.

    python -m benchmarks.retrieval --model=quickstart --out=runs/retrieval
    python -m benchmarks.retrieval --model=quickstart --out=runs/retrieval --rivals

The pairs are summaries and second paragraphs of docstrings of installed packages; those of a
quarter of the files are held out, as queries and documents. Finished trainings in --out are not
repeated. --rivals also trains with sentence-transformers: the same encoder, pairs, batches, rate,
schedule and loss, without dropout in both. A line is the mean and the standard deviation of the
seeds.
"""

import argparse
import ast
import hashlib
import importlib.util
import json
import pathlib
import statistics
import warnings
from collections.abc import Callable

from benchmarks import command
from bert_jax.tools.cli.command_line import Flag

FLAGS = (
    Flag("model", "", "A masked language model.", missing="a workdir, or another program's folder"),
    Flag("out", "", "Folder for files and models.", missing="a folder"),
    Flag("seeds", 5, "Trainings of each kind.", minimum=1),
    Flag("epochs", 1, "Passes over the pairs.", minimum=1),
    Flag("rivals", False, "Also train with sentence-transformers."),
    Flag("only", "", "Kinds to train, separated by commas; empty: all."),
)
PACKAGES = ("numpy", "jax", "optax", "flax", "scipy")
_SCORES = ("ndcg_at_10", "mrr_at_10", "accuracy", "recall_at_100")


def run(flags: argparse.Namespace) -> None:
    out = pathlib.Path(flags.out)
    out.mkdir(parents=True, exist_ok=True)
    pairs = write_pairs(out)
    print(f"{len(pairs[0]):,} pairs to train on, {len(pairs[1]):,} held out", flush=True)
    kinds = [kind for kind in flags.only.split(",") if kind] or [*KINDS, *RIVALS * flags.rivals]
    rows: dict[str, list[dict[str, float]]] = {}
    for kind in kinds:
        for seed in range(flags.seeds):
            path = out / f"{kind}-{seed}.json"
            if not path.is_file():
                found = _scores(kind, flags.model, out, seed, flags.epochs)
                path.write_text(json.dumps(found))
            for name, scores in json.loads(path.read_text()).items():
                row = "tf_idf" if name == "tf_idf" else f"{kind}, {name}"
                rows.setdefault(row, []).append(scores)
        for row in [row for row in rows if row.startswith((f"{kind},", "tf_idf"))]:
            print(f"{row:<28}", *map(_mean(rows[row]), _SCORES), flush=True)


def _mean(scores: list[dict[str, float]]) -> Callable[[str], str]:
    def text(name: str) -> str:
        values = [row[name] for row in scores]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        return f"{name} {statistics.mean(values):.3f} ± {spread:.3f} "

    return text


def write_pairs(out: pathlib.Path) -> tuple[list, list]:
    """Writes train.jsonl and the retrieval set `dev`; returns the pairs of both."""
    pairs: tuple[list, list] = ([], [])
    warnings.simplefilter("ignore")
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.origin is not None
        for path in sorted(pathlib.Path(spec.origin).parent.rglob("*.py")):
            is_dev = hashlib.sha256(path.name.encode()).digest()[0] < 64
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef | ast.FunctionDef):
                    text = ast.get_docstring(node) or ""
                    parts = tuple(" ".join(part.split()) for part in text.split("\n\n"))[:2]
                    if len(parts) == 2 and all(40 < len(part) < 300 for part in parts):
                        pairs[is_dev].append(parts)
    pairs = list(dict.fromkeys(pairs[0])), list(dict.fromkeys(pairs[1]))
    _write(out / "train.jsonl", [{"anchor": a, "positive": b} for a, b in pairs[0]])
    folder = out / "dev"
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    queries, documents = (
        {text: f"{name}{n}" for n, text in enumerate(dict.fromkeys(texts))}
        for name, texts in zip("qd", zip(*pairs[1], strict=True), strict=True)
    )
    for name, texts in (("queries", queries), ("corpus", documents)):
        _write(
            folder / f"{name}.jsonl", [{"_id": key, "text": text} for text, key in texts.items()]
        )
    lines = [
        "query-id\tcorpus-id\tscore",
        *(f"{queries[a]}\t{documents[b]}\t1" for a, b in pairs[1]),
    ]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return pairs


def _write(path: pathlib.Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


# What a training has in common with that of the rival.
SETTINGS = {
    "max_length": 48,
    "global_batch_size": 32,
    "model__dropout_rate": 0.0,
    "model__attention_dropout_rate": 0.0,
    "eval__every": 0,
    "optimizer__learning_rate": 1e-3,
}
_HEADS = {"task__pool": "cls", "task__pooler": True}
# Kind -> task, training file, further fields.
KINDS = {
    "dense": ("embedding", "train.jsonl", {"task__pool": "mean"}),
    "dense_mined": ("embedding", "mined.jsonl", {"task__pool": "mean"}),
    "splade": ("splade", "train.jsonl", {}),
    "colbert": ("colbert", "train.jsonl", {}),
    "cross_encoder": ("cross_encoder", "train.jsonl", _HEADS),
    "cross_encoder_mined": ("cross_encoder", "mined.jsonl", _HEADS),
}
RIVALS = ("st_dense", "st_cross_encoder_mined")


def _scores(kind: str, model: str, out: pathlib.Path, seed: int, epochs: int) -> dict[str, dict]:
    """Returns the scores of one training: those of `evaluate_retrieval`."""
    import bert_jax

    dense = out / f"dense-{seed}"
    if not dense.is_dir():
        _train("dense", model, out, seed, epochs)
    mined = out / "mined.jsonl"
    if kind.endswith("mined") and not mined.is_file():
        first = bert_jax.load(out / "dense-0")
        _write(mined, bert_jax.mine_negatives(first, out / "train.jsonl", 4))
    if kind in RIVALS:
        from benchmarks.rivals import retrieval_torch

        trained = retrieval_torch.train(kind, model, out, seed, epochs, SETTINGS)
    else:
        trained = bert_jax.load(
            dense if kind == "dense" else _train(kind, model, out, seed, epochs)
        )
    if "cross_encoder" not in kind:
        return bert_jax.evaluate_retrieval(trained, out / "dev")
    found = bert_jax.evaluate_retrieval(bert_jax.load(dense), out / "dev", trained, 50)
    return {"reranked": found["reranked"]}


def _train(kind: str, model: str, out: pathlib.Path, seed: int, epochs: int) -> pathlib.Path:
    import bert_jax
    from bert_jax.training.listener import Listener

    task, file, fields = KINDS[kind]
    workdir = out / f"{kind}-{seed}"
    # Rows of mined triplets are four for each pair.
    parts = 4 if file == "mined.jsonl" else 1
    bert_jax.finetune(
        model,
        out / file,
        evaluate=out / file,
        task=task,
        workdir=workdir,
        listener=Listener(),
        seed=seed,
        epochs=epochs / parts,
        **SETTINGS,
        **fields,
    )
    return workdir


if __name__ == "__main__":
    command.start("retrieval")
