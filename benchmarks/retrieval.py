"""Trains all kinds of retrieval models on the same pairs, and prints how well each one finds.

    python -m benchmarks.retrieval --model=quickstart --pair_model=tiny --out=runs/retrieval \\
        --rivals

The pairs are summaries and second paragraphs of docstrings of installed packages; those of a
quarter of the files are held out, as queries and documents. Cross-encoders start from --pair_model,
best an encoder with next-sentence prediction (configs/tiny.py): one that never saw two texts in a
row learns too little of them. They order the best 50 documents of dense vectors again.

Finished trainings in --out are not repeated. --rivals also trains with sentence-transformers: the
same encoder, pairs, batches, rate, schedule and loss, without dropout in both. A line is the mean
and the standard deviation of the seeds.
"""

import argparse
import ast
import hashlib
import importlib.util
import json
import pathlib
import random
import statistics
import warnings
from collections.abc import Callable

from benchmarks import command
from bert_jax.tools.cli.command_line import Flag

FLAGS = (
    Flag("model", "", "A masked language model.", missing="a workdir, or another program's folder"),
    Flag("pair_model", "", "Encoder of cross-encoders; empty: that of --model."),
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
                models = flags.model, flags.pair_model or flags.model
                found = _scores(kind, models, out, seed, flags.epochs)
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
_SHARED = {
    "global_batch_size": 32,
    "model__dropout_rate": 0.0,
    "model__attention_dropout_rate": 0.0,
    "eval__every": 0,
}
_VECTORS = _SHARED | {"optimizer__learning_rate": 1e-3, "max_length": 48}
# A row has both texts; the encoder is post-norm, and learns nothing at 1e-3.
_PAIRS = _SHARED | {
    "optimizer__learning_rate": 3e-4,
    "max_length": 96,
    "task__pool": "cls",
    "task__pooler": True,
}
# Task, training file, rows of a pair in it, fields.
KINDS = {
    "dense": ("embedding", "train.jsonl", 1, {**_VECTORS, "task__pool": "mean"}),
    "dense_mined": ("embedding", "mined.jsonl", 4, {**_VECTORS, "task__pool": "mean"}),
    "splade": ("splade", "train.jsonl", 1, _VECTORS),
    "colbert": ("colbert", "train.jsonl", 1, _VECTORS),
    "cross_encoder": ("cross_encoder", "drawn.jsonl", 1, _PAIRS),
}
# Kinds that sentence-transformers trains too.
_RIVAL = "st_"
RIVALS = tuple(f"{_RIVAL}{kind}" for kind in KINDS if kind != "dense_mined")
_DRAWN, _MINED = 2, 4


def _scores(
    kind: str, models: tuple[str, str], out: pathlib.Path, seed: int, epochs: int
) -> dict[str, dict]:
    """Returns the scores of one training: those of `evaluate_retrieval`."""
    import bert_jax

    name = kind.removeprefix(_RIVAL)
    is_pair = name == "cross_encoder"
    if KINDS[name][1] != "train.jsonl":
        _train("dense", models[0], out, seed, epochs)
        _write_triplets(out)
    if kind != name:
        from benchmarks.rivals import retrieval_torch

        trained = retrieval_torch.train(name, models[is_pair], out, seed, epochs, KINDS[name])
    else:
        trained = bert_jax.load(_train(kind, models[is_pair], out, seed, epochs))
    if not is_pair:
        return bert_jax.evaluate_retrieval(trained, out / "dev")
    dense = bert_jax.load(_train("dense", models[0], out, seed, epochs))
    found = bert_jax.evaluate_retrieval(dense, out / "dev", trained, 50)
    return {"reranked": found["reranked"]}


def _write_triplets(out: pathlib.Path) -> None:
    """Writes mined.jsonl, by the first dense model, and drawn.jsonl, unless they are there."""
    import bert_jax

    if not (path := out / "mined.jsonl").is_file():
        first = bert_jax.load(out / "dense-0")
        _write(path, bert_jax.mine_negatives(first, out / "train.jsonl", _MINED))
    if not (path := out / "drawn.jsonl").is_file():
        lines = (out / "train.jsonl").read_text(encoding="utf-8").splitlines()
        rows, rng = [json.loads(line) for line in lines], random.Random(0)
        places = [
            (n, (n + rng.randrange(1, len(rows))) % len(rows)) for n in [*range(len(rows))] * _DRAWN
        ]
        _write(path, [{**rows[n], "negative": rows[other]["positive"]} for n, other in places])


def _train(kind: str, model: str, out: pathlib.Path, seed: int, epochs: int) -> pathlib.Path:
    """Trains, unless it is done, and returns the workdir."""
    import bert_jax
    from bert_jax.training.listener import Listener

    task, file, rows, fields = KINDS[kind]
    workdir = out / f"{kind}-{seed}"
    bert_jax.finetune(
        model,
        out / file,
        evaluate=out / "train.jsonl",
        task=task,
        workdir=workdir,
        listener=Listener(),
        seed=seed,
        epochs=epochs / rows,
        **fields,
    )
    return workdir


if __name__ == "__main__":
    command.start("retrieval")
