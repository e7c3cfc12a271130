"""Compares what two checkouts of this package compute, bit for bit.

    python tests/compare_checkouts.py record --checkout=DIR --output=FILE.json
    python tests/compare_checkouts.py compare A.json B.json

`record` runs the commands of a checkout on small generated files: preparation of data,
pre-training, fine-tuning, evaluation, prediction, features, scores, export and import. It writes
the SHA-256 of every file, array and number that they produce, by name. `compare` lists the names
whose hashes differ, or which only one of the two records has, and exits with 1 if there are any.

A checkout is used by its command line only, so that checkouts of different internal structure can
be compared. Hashes can be compared if both records were made on the same machine with the same
packages. All commands run in a working folder with relative paths; that folder, which --keep
preserves, is the place to look at what differs.
"""

import argparse
import csv
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any

import absl.logging
import numpy as np

PACKAGES = "jax jaxlib flax optax orbax-checkpoint numpy ml_collections sentencepiece sentencex"
VOCAB_SIZE = 128
# Two phases; dropout and optimizer are those of the configuration that the run is made with.
PRETRAINING = {
    "steps": 60,
    "phases": "((16, 0.5), (32, 0.5))",
    "global_batch_size": 8,
    "model.vocab_size": VOCAB_SIZE,
    "model.hidden_size": 32,
    "model.num_layers": 2,
    "model.intermediate_size": 64,
    "model.max_position_embeddings": 48,
    "model.dropout_rate": 0.1,
    "model.attention_dropout_rate": 0.1,
    "data.source": "text:corpus.txt",
    "data.line_format": "sentences",
    "data.dupe_factor": 2,
    "data.validation_share": 0.1,
    "data.num_processes": 1,
    "optimizer.learning_rate": 1e-3,
    "optimizer.warmup": "6",
    "log.every": "8",
    "eval.every": "25",
    "checkpoint.every": "30",
}
DATA = {
    "dynamic": {},
    "full_sentences": {
        "model.next_sentence": False,
        "data.segments": "full_sentences",
        "data.num_processes": 2,
    },
    "static": {"data.mode": "static"},
}
# Name -> (number of CPU devices, prepared data, changes of PRETRAINING).
RUNS = {
    "pretraining": (1, "dynamic", {}),
    "mesh": (
        8,
        "dynamic",
        {
            "steps": 12,
            "prng_impl": "threefry2x32",
            "global_batch_size": 16,
            "microbatch_size": 8,
            "dtype": "bfloat16",
            "mesh.data": 2,
            "mesh.fsdp": 2,
            "mesh.tensor": 2,
            "model.pad_vocab_to_multiple_of": 8,
            "model.num_layers": 1,
            "data.masking": "whole_word",
            "log.every": "5",
            "eval.every": "6",
            "checkpoint.every": "6",
        },
    ),
    "roberta": (
        1,
        "full_sentences",
        {
            "steps": 4,
            "prng_impl": "threefry2x32",
            "preset": "roberta",
            "model.num_layers": 1,
            "data.masking": "span",
            "log.every": "3",
            "checkpoint.every": "4",
        },
    ),
    "static": (
        1,
        "static",
        {
            "steps": 4,
            "prng_impl": "threefry2x32",
            "model.num_layers": 1,
            "model.remat": True,
            "log.every": "3",
            "checkpoint.every": "4",
        },
    ),
}
# Of all runs that start from the parameters of the run `pretraining`.
FINETUNING = {
    "init_from": "pretraining",
    "epochs": 0,
    "steps": 8,
    "prng_impl": "threefry2x32",  # the fastest to compile
    "max_length": "24",
    "data.bucket_lengths": "(16,)",
    "global_batch_size": 8,
    "optimizer.learning_rate": 1e-3,
    "log.every": "3",
    "eval.every": "4",
    "checkpoint.every": "4",
}
# Name -> (configuration, ending of its files, ending of the predictions in a published form,
# whether a class of transformers has the head, changes of FINETUNING).
TASKS = {
    "classification": ("classification", "tsv", "", True, {"optimizer.layer_decay": 0.9}),
    "tagging": ("tagging", "conll", "conll", True, {}),
    "tagging_crf": (
        "tagging",
        "conll",
        "",
        False,
        {
            "head.tagging": "bilstm_crf",
            "head.layers": "scalar_mix",
            "head.lstm_size": 8,
            "head.lstm_layers": 1,
        },
    ),
    "span": (
        "span",
        "json",
        "json",
        True,
        {
            "head.null_answers": True,
            "head.doc_stride": 8,
            "head.max_query_length": 8,
            "metrics": "('f1', 'exact')",
        },
    ),
    "multiple_choice": ("multiple_choice", "csv", "", True, {}),
}
FEATURES = {
    "subword": ("--layers=all",),
    "word": ("--level=word", "--layers=second_to_last"),
    "sentence": ("--level=sentence", "--pooling=mean", "--normalize"),
}

# ------------------------------------------------------------------ generated files


def make_words() -> list[str]:
    rng = random.Random(0)
    return ["".join(rng.choices("abcdefgh", k=rng.randint(2, 5))) for _ in range(200)]


def write_files(folder: pathlib.Path) -> None:
    """Writes the corpus, the files to fine-tune on and the files to predict."""
    rng, words = random.Random(1), make_words()

    def text(least: int, most: int) -> str:
        return " ".join(rng.choices(words, k=rng.randint(least, most)))

    documents = ("\n".join(text(3, 8) for _ in range(rng.randint(3, 7))) for _ in range(300))
    (folder / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    for split, count in (("train", 60), ("eval", 20), ("input", 10)):
        labelled = split != "input"
        texts = [text(2, 16) for _ in range(count)]
        rows = [("text_a", "label"), *((words, "xyz"[len(words) % 3]) for words in texts)]
        write_table(folder / f"{split}.tsv", rows, labelled)
        write_tags(folder / f"{split}.conll", [text(2, 16).split() for _ in range(count)], labelled)
        write_questions(folder / f"{split}.json", [text(6, 30) for _ in range(count)], labelled)
        rows = [("sent1", "sent2", "ending0", "ending1", "ending2", "label")]
        rows += [(*(text(1, 5) for _ in range(5)), number % 3) for number in range(count)]
        write_table(folder / f"{split}.csv", rows, labelled)
    write_texts(folder, [text(3, 12) for _ in range(12)])


def write_table(path: pathlib.Path, rows: list[tuple], labelled: bool) -> None:
    """The label is the last column."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t")
        writer.writerows(rows if labelled else (row[:-1] for row in rows))


def write_tags(path: pathlib.Path, sentences: list[list[str]], labelled: bool) -> None:
    """The first letter of a word decides its tag."""
    tags = {"a": " B-PER", "b": " B-LOC", "c": " B-LOC"}
    blocks = (
        "\n".join(word + (tags.get(word[0], " O") if labelled else "") for word in sentence)
        for sentence in sentences
    )
    path.write_text("\n\n".join(blocks) + "\n")


def write_questions(path: pathlib.Path, contexts: list[str], labelled: bool) -> None:
    """The answer is the third word, except of every fourth question, which has none."""
    paragraphs = []
    for number, context in enumerate(contexts):
        words = context.split()
        question: dict[str, Any] = {"id": f"q{number}", "question": " ".join(words[-2:])}
        if labelled:
            start = len(words[0]) + len(words[1]) + 2
            answers = [{"text": words[2], "answer_start": start}] if number % 4 else []
            question |= {"answers": answers, "is_impossible": not answers}
        paragraphs.append({"context": context, "qas": [question]})
    content = {"version": "v2.0", "data": [{"title": "words", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(content))


def write_texts(folder: pathlib.Path, texts: list[str]) -> None:
    """Single texts and pairs, with and without [MASK]."""
    half = len(texts) // 2
    pairs = [{"text_a": a, "text_b": b} for a, b in zip(texts[:half], texts[half:], strict=True)]
    lines = [*texts, *(json.dumps(pair) for pair in pairs), "unknown: ?! abc"]
    (folder / "texts.txt").write_text("\n".join(lines) + "\n")
    for pair in pairs:
        words = pair["text_a"].split()
        pair["text_a"] = " ".join(["[MASK]", *words[1:], "[MASK]"])
    lines = [f"{text} [MASK]" for text in texts] + [json.dumps(pair) for pair in pairs]
    (folder / "masked.txt").write_text("\n".join(lines) + "\n")


# ------------------------------------------------------------------ hashes


class Record:
    """Name -> SHA-256 of everything that was produced in a folder."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.entries: dict[str, str] = {}

    def add(self, name: str, content: bytes) -> None:
        if name in self.entries:
            raise ValueError(f"{name} is recorded twice")
        self.entries[name] = hashlib.sha256(content).hexdigest()

    def file(self, name: str, path: str | pathlib.Path) -> None:
        self.add(name, (self.folder / path).read_bytes())

    def array(self, name: str, array: np.ndarray) -> None:
        about = f"{array.dtype} {array.shape} ".encode()
        self.add(name, about + np.ascontiguousarray(array).tobytes())

    def value(self, name: str, value: Any) -> None:
        """A JSON value; of a dictionary each field. Paths become relative to the folder."""
        if isinstance(value, dict) and value:
            for field, inner in value.items():
                self.value(f"{name} {field}", inner)
            return
        text = json.dumps(value, sort_keys=True)
        self.add(name, text.replace(f"{self.folder}/", "").encode())

    def json(self, path: str) -> None:
        self.value(path, json.loads((self.folder / path).read_text()))

    def lines(self, path: str) -> None:
        """Each line of a text file."""
        for number, line in enumerate((self.folder / path).read_bytes().splitlines(), 1):
            self.add(f"{path} line {number}", line)

    def npz(self, path: str) -> None:
        with np.load(self.folder / path) as arrays:
            for name in arrays.files:
                self.array(f"{path} {name}", arrays[name])

    def safetensors(self, path: str) -> None:
        for name, content in read_safetensors(self.folder / path):
            self.add(f"{path} {name}", content)

    def checkpoints(self, workdir: str) -> None:
        """Each array of each checkpoint, the metrics it was sealed with and its open sums."""
        folder = self.folder / workdir / "checkpoints"
        for step in sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal()):
            name = f"{workdir}/checkpoints/{step}"
            for path, array in read_arrays(folder / str(step)):
                self.array(f"{name} {path}", array)
            seal = json.loads((folder / f"{step}.sha256.json").read_text())
            self.value(f"{name} metrics", seal["metrics"])
            meta = json.loads((folder / str(step) / "meta" / "metadata").read_text())
            for field in ("data", "totals"):
                self.value(f"{name} {field}", meta.get(field))

    def run(self, workdir: str) -> None:
        """The workdir of a run that has trained, except for its prepared data."""
        self.json(f"{workdir}/config.json")
        self.file(f"{workdir}/vocab.txt", f"{workdir}/vocab.txt")
        self.checkpoints(workdir)
        for line in (self.folder / workdir / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            row.pop("speed", None)
            name = f"{workdir}/metrics.jsonl {row.pop('split')} {row.pop('step')}"
            self.value(name, row)


def read_arrays(checkpoint: pathlib.Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (path, array) of the parameters and the rest of the state, if there is one."""
    import jax
    import orbax.checkpoint as ocp

    for item in ("params", "train_state"):
        folder = checkpoint / item
        if not folder.is_dir():  # imported parameters
            continue
        handler = ocp.PyTreeCheckpointer()
        metadata = handler.metadata(folder).item_metadata.tree
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), metadata)
        tree = handler.restore(folder, args=ocp.args.PyTreeRestore(restore_args=as_numpy))
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            yield item + jax.tree_util.keystr(path), np.asarray(leaf)


def read_safetensors(path: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """Yields (name, type, shape and bytes) of each tensor, and the header's other fields."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    for name, facts in json.loads(content[8 : 8 + size]).items():
        start, stop = (size + 8 + offset for offset in facts.pop("data_offsets", (0, 0)))
        yield name, json.dumps(facts, sort_keys=True).encode() + content[start:stop]


# ------------------------------------------------------------------ commands


class Checkout:
    """The command line of a checkout, used in a working folder."""

    def __init__(self, folder: pathlib.Path, python: str, work: pathlib.Path):
        self.folder, self.python, self.work = folder, python, work
        # `python -m bert_jax COMMAND`, where earlier versions have `python -m bert_jax.COMMAND`.
        self._has_main = (folder / "bert_jax" / "__main__.py").is_file()
        if not (folder / "bert_jax").is_dir():
            raise SystemExit(f"error: {folder} is no checkout: there is no bert_jax in it.")

    def run(self, command: str, *words: str, devices: int = 1) -> None:
        """Runs a command; ends this program if it fails."""
        module = ["bert_jax", command] if self._has_main else [f"bert_jax.{command}"]
        if command == "main":
            module = ["bert_jax.main"]
        print(f"[{time.strftime('%X')}] {' '.join([*module, *words])}"[:100], flush=True)
        ended = subprocess.run(
            [self.python, "-m", *module, *words],
            cwd=self.work,
            env=self._environment(devices),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if ended.returncode:
            print(ended.stdout, ended.stderr, sep="\n", file=sys.stderr)
            command_line = " ".join(["python", "-m", *module, *words])
            raise SystemExit(f"error: exit code {ended.returncode} of {command_line}")

    def config(self, name: str, values: dict[str, Any]) -> list[str]:
        """The flags of a configuration of the checkout with other values."""
        path = self.folder / "configs" / f"{name}.py"
        return [f"--config={path}"] + [f"--config.{name}={v}" for name, v in values.items()]

    def _environment(self, devices: int) -> dict[str, str]:
        ours = ("JAX_", "XLA_", "PYTHON")
        inherited = {n: v for n, v in os.environ.items() if not n.startswith(ours)}
        return inherited | {
            "PYTHONPATH": str(self.folder),
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(devices),
        }


# ------------------------------------------------------------------ what is recorded


def record_data(checkout: Checkout, record: Record) -> None:
    for name, changes in DATA.items():
        folder = f"data/{name}"
        flags = checkout.config("tiny", PRETRAINING | changes)
        checkout.run("prepare", *flags, f"--data_dir={folder}", f"--dump_jsonl={folder}.jsonl")
        record.json(f"{folder}/manifest.json")
        record.file(f"{folder}.jsonl", f"{folder}.jsonl")
        manifest = json.loads((record.folder / folder / "manifest.json").read_text())
        for path in sorted(file_names(manifest)):
            record.file(f"{folder}/{path}", f"{folder}/{path}")


def file_names(value: Any) -> set[str]:
    """Names of the files that a manifest lists with their checksums, apart from the text's."""
    if isinstance(value, dict):
        inner = set().union(*(file_names(v) for n, v in value.items() if n != "source"))
        return inner | ({value["name"]} if {"name", "sha256"} <= value.keys() else set())
    return set().union(*map(file_names, value)) if isinstance(value, list) else set()


def record_pretraining(checkout: Checkout, record: Record) -> None:
    for name, (devices, data, changes) in RUNS.items():
        values = PRETRAINING | DATA[data] | changes | {"data.dir": f"data/{data}"}
        flags = checkout.config("tiny", values)
        checkout.run("main", f"--workdir={name}", *flags, devices=devices)
        record.run(name)


def record_inference(checkout: Checkout, record: Record) -> None:
    workdir = "--workdir=pretraining"
    checkout.run("main", "--mode=evaluate", workdir)
    record.json("pretraining/results.json")
    files = "--input=masked.txt", "--output=answers.jsonl"
    checkout.run("main", "--mode=predict", workdir, *files)
    record.lines("answers.jsonl")
    checkout.run("score", workdir, "--input=texts.txt", "--output=scores.jsonl")
    record.lines("scores.jsonl")
    for level, words in FEATURES.items():
        path = f"features-{level}.npz"
        checkout.run("features", workdir, "--input=texts.txt", f"--output={path}", *words)
        record.npz(path)


def record_finetuning(checkout: Checkout, record: Record) -> None:
    for name, (config, ending, official, _, changes) in TASKS.items():
        files = {"data.train": f"train.{ending}", "data.eval": f"eval.{ending}"}
        values = FINETUNING | files | changes
        checkout.run("main", f"--workdir={name}", *checkout.config(config, values))
        record.run(name)
        record.json(f"{name}/results.json")
        record.json(f"{name}/labels.json")
        for form in filter(None, ("jsonl", official)):
            output = f"{name}-answers.{form}"
            words = f"--workdir={name}", f"--input=input.{ending}", f"--output={output}"
            checkout.run("main", "--mode=predict", *words)
            record.lines(output)
        if config == "span":
            record.json(f"{name}-answers.na_probs.json")


def record_conversions(checkout: Checkout, record: Record) -> None:
    exported = ["pretraining", "mesh", *(name for name, row in TASKS.items() if row[3])]
    for name in exported:
        folder = f"{name}-hf"
        checkout.run("convert", "to_hf", name, folder, "--nocomparison")
        record.json(f"{folder}/config.json")
        record.safetensors(f"{folder}/model.safetensors")
        for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
            record.file(f"{folder}/{file}", f"{folder}/{file}")
        if name in ("pretraining", "tagging"):
            imported = f"{name}-imported"
            checkout.run("convert", "from_hf", folder, imported, "--nocomparison")
            record.json(f"{imported}/config.json")
            record.checkpoints(imported)
    checkout.run("convert", "to_stablehlo", "pretraining", "pretraining-stablehlo")
    record.npz("pretraining-stablehlo/weights.npz")
    record_program(record, "pretraining-stablehlo")


def record_program(record: Record, folder: str) -> None:
    """The text of an exported program without names of functions and places in the source."""
    import jax.export

    path = record.folder / folder
    program = jax.export.deserialize(bytearray((path / "model.stablehlo").read_bytes()))
    names: dict[str, str] = {}
    text = re.sub(
        r"@[\w.]+",
        lambda match: names.setdefault(match[0], f"@{len(names)}"),
        re.sub(r"loc\(.*?\)|#loc.*\n?", "", program.mlir_module()),
    )
    record.add(f"{folder}/model.stablehlo program", text.encode())
    content = json.loads((path / "model.json").read_text())
    record.value(f"{folder}/model.json", {n: v for n, v in content.items() if n != "sha256"})
    ids = np.arange(20, dtype=np.int32).reshape(2, 10)
    inputs = {
        "input_ids": ids,
        "token_type_ids": ids % 2,
        "attention_mask": np.ones_like(ids),
        "masked_lm_positions": ids[:, :3] % 10,
    }
    with np.load(path / "weights.npz") as weights:
        outputs = jax.jit(program.call)(dict(weights), inputs)
    for name, array in outputs.items():
        record.array(f"{folder}/model.stablehlo {name}", np.asarray(array))


def record(checkout: str, output: str, python: str, keep: str) -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    absl.logging.set_verbosity(absl.logging.ERROR)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(keep or temporary).resolve()
        work.mkdir(parents=True, exist_ok=True)
        if any(work.iterdir()):
            raise SystemExit(f"error: {work} is not empty.")
        write_files(work)
        commands = Checkout(pathlib.Path(checkout).resolve(), python, work)
        found = Record(work)
        for stage in (
            record_data,
            record_pretraining,
            record_inference,
            record_finetuning,
            record_conversions,
        ):
            stage(commands, found)
    content = {"environment": environment(), "entries": found.entries}
    pathlib.Path(output).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    print(f"{len(found.entries):,} entries in {output}: {time.monotonic() - start:.0f} s")


def environment() -> dict[str, str]:
    """What the hashes depend on beside the checkout."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES.split()}
    return versions | {"python": platform.python_version(), "cores": str(os.cpu_count())}


def compare(paths: Iterable[str]) -> int:
    """Prints the differences of two records; returns the exit code."""
    a, b = (json.loads(pathlib.Path(path).read_text()) for path in paths)
    for name in sorted(a["environment"].keys() | b["environment"].keys()):
        values = [record["environment"].get(name, "missing") for record in (a, b)]
        if values[0] != values[1]:
            print(f"note: made with different {name}: {values[0]}, {values[1]}")
    entries = [record["entries"] for record in (a, b)]
    names = sorted(entries[0].keys() | entries[1].keys())
    equal = 0
    for name in names:
        found = [record.get(name) for record in entries]
        equal += found[0] == found[1]
        if None in found:
            print(f"only in {'AB'[found[0] is None]}: {name}")
        elif found[0] != found[1]:
            print(f"differs: {name}")
    print(f"{equal:,} of {len(names):,} entries agree")
    return int(equal < len(names))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run a checkout and write its hashes")
    recording.add_argument("--checkout", required=True, metavar="DIR", help="folder of a checkout")
    recording.add_argument("--output", required=True, metavar="FILE", help="record to write")
    recording.add_argument(
        "--python", default=sys.executable, metavar="PATH", help="interpreter that runs it"
    )
    recording.add_argument(
        "--keep", default="", metavar="DIR", help="new folder in which to keep what was produced"
    )
    comparing = commands.add_parser("compare", help="list the differences of two records")
    comparing.add_argument("records", nargs=2, metavar="FILE", help="records to compare")
    given = parser.parse_args()
    if given.command == "compare":
        sys.exit(compare(given.records))
    record(given.checkout, given.output, given.python, given.keep)


if __name__ == "__main__":
    main()
