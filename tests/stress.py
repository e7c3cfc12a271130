"""Reads thousands of damaged input files, and expects one clear line for each that is refused.

    python -m tests.stress --cases=10000 [--seed=0] [--only=KIND,...]

Good files of each kind are damaged at random: bytes changed, removed, repeated, inserted, parts of
one file put into another, JSON values replaced by others. A reader may return or raise a ValueError
or an OSError that the program prints as one line. Anything else is a defect and is printed: another
exception, an error that a library raised, more than --seconds for a file, or more than 2 GiB of
memory. The damaged file is kept. Exit code 1 with defects.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import resource
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import sentencepiece

from bert_jax.config import store
from bert_jax.config.task import default_config
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import prepare
from bert_jax.data.labelled.choices import read_choices
from bert_jax.data.labelled.conll import read_tagged
from bert_jax.data.labelled.questions import read_questions
from bert_jax.data.labelled.tables import Columns, read_table
from bert_jax.files.errors import UserError
from bert_jax.formats.safetensors_file import read_safetensors, write_safetensors
from bert_jax.formats.tensorflow_bundle import Bundle
from bert_jax.text.sources import make_source
from bert_jax.text.tokenizers import load_tokenizer
from tests.text.arrow_files import SAMPLE, write_parquet, write_stream
from tests.tools.convert.bundle_writer import write_bundle

WORDS = "the cat sat on a mat Zürich 東京 isn't 1891 -DOCSTART- O B-PER".split()
ODD = (
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3", b"\r", b"\n\n\n", b'"', b'""', b"\\", b"\t"),
    *(b"9" * 400, b"-1", b"1e999", b"NaN", b"null", b"\xe2\x80\xa8"),
    *(b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", struct.pack("<Q", 2**63), struct.pack("<q", -1)),
)
VALUES = (None, True, -1, 2**70, 1e308, float("nan"), "", "x", [], {}, [[[]]], {"a": {}})
MEMORY = 2 << 30
Reader = Callable[[pathlib.Path], None]


class TooLong(BaseException):
    """No reader catches it."""


def text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


# ---------------------------------------------------------------------- good files and readers


def corpus(folder: pathlib.Path, rng: random.Random) -> Reader:
    lines = [text(rng, rng.randint(0, 20)) for _ in range(60)]
    (folder / "good.txt").write_text("\n".join(lines))
    return lambda path: _read_source(f"text:{path}")


def json_lines(folder: pathlib.Path, rng: random.Random) -> Reader:
    lines = [json.dumps({"text": text(rng, 9), "id": i}) for i in range(40)]
    (folder / "good.jsonl").write_text("\n".join(lines))
    return lambda path: _read_source(f"jsonl:{path}")


def _read_source(name: str) -> None:
    config = default_config("pretraining")
    config = config.replace({"data.source": name})
    source = make_source(config.data)
    for chunk in source.chunks():
        _exhaust(source.read(chunk, collections.Counter()))


def parquet(folder: pathlib.Path, rng: random.Random) -> Reader:
    write_parquet(folder / "good.parquet", SAMPLE)
    return _read_table


def arrow_stream(folder: pathlib.Path, rng: random.Random) -> Reader:
    write_stream(folder / "good.arrow", SAMPLE)
    return _read_table


def _read_table(path: pathlib.Path) -> None:
    _read_source(f"parquet:{path}")
    _exhaust(read_table(str(path), Columns("text", label="label"), collections.Counter()))


def table(folder: pathlib.Path, rng: random.Random) -> Reader:
    rows = [f"gj04\t{rng.randint(0, 1)}\t*\t{text(rng, 8)}" for _ in range(40)]  # as CoLA
    (folder / "good.tsv").write_text("\n".join(rows))
    columns = Columns(3, label=1)
    return lambda path: _exhaust(read_table(str(path), columns, collections.Counter()))


def quoted_table(folder: pathlib.Path, rng: random.Random) -> Reader:
    names = ("sent1", "sent2", "ending0", "ending1", "label")
    rows = [",".join(names)]
    rows += [f'"{text(rng, 5)}",a,"b ""c""",d,{rng.randint(0, 1)}' for _ in range(30)]  # as SWAG
    (folder / "good.csv").write_text("\n".join(rows))
    return lambda path: _exhaust(read_choices(str(path), collections.Counter()))


def conll(folder: pathlib.Path, rng: random.Random) -> Reader:
    tags = ("O", "B-PER", "I-PER", "B-LOC")
    sentences = [
        "\n".join(f"{rng.choice(WORDS)} {rng.choice(tags)}" for _ in range(rng.randint(1, 12)))
        for _ in range(30)
    ]
    (folder / "good.conll").write_text("\n\n".join(sentences))
    return lambda path: _exhaust(read_tagged(str(path), collections.Counter()))


def squad(folder: pathlib.Path, rng: random.Random) -> Reader:
    def question(number: int, context: str) -> dict[str, Any]:
        start = rng.randrange(len(context) - 3)
        answers = [{"text": context[start : start + 3], "answer_start": start}]
        return {"id": str(number), "question": text(rng, 5), "answers": answers}

    contexts = [text(rng, 30) for _ in range(8)]
    paragraphs = [
        {"context": context, "qas": [question(10 * i + j, context) for j in range(3)]}
        for i, context in enumerate(contexts)
    ]
    content = {"version": "1.1", "data": [{"title": "a", "paragraphs": paragraphs}]}
    (folder / "good.json").write_text(json.dumps(content))
    return lambda path: _exhaust(read_questions(str(path), collections.Counter()))


def config(folder: pathlib.Path, rng: random.Random) -> Reader:
    store.save(default_config("pretraining"), str(folder))
    (folder / "config.json").rename(folder / "good.json")

    def read(path: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as workdir:
            os.link(path, os.path.join(workdir, "config.json"))
            store.load(workdir)

    return read


def word_pieces(folder: pathlib.Path, rng: random.Random) -> Reader:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop"]
    pieces += [f"##{letter}" for letter in "abcdefghijklmnop"]
    (folder / "good.txt").write_text("\n".join(pieces))
    return _tokenize


def sentence_pieces(folder: pathlib.Path, rng: random.Random) -> Reader:
    lines = iter([text(rng, 12) for _ in range(300)])
    symbols = "[PAD],[CLS],[SEP],[MASK]"
    with open(folder / "good.model", "wb") as file:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=lines,
            model_writer=file,
            vocab_size=60,
            user_defined_symbols=symbols,
            unk_piece="[UNK]",
            bos_id=-1,
            eos_id=-1,
            hard_vocab_limit=False,
            minloglevel=2,
        )
    return _tokenize


def safetensors(folder: pathlib.Path, rng: random.Random) -> Reader:
    tensors = {f"layer.{i}.weight": np.ones((3, i + 1), np.float32) for i in range(6)}
    write_safetensors(folder / "good.safetensors", tensors)
    return lambda path: _exhaust(array.sum() for array in read_safetensors(str(path)).values())


def bundle_index(folder: pathlib.Path, rng: random.Random) -> Reader:
    tensors = {f"layer/{i}/kernel": np.ones((3, i + 1), np.float32) for i in range(6)}
    write_bundle(folder / "model.ckpt", tensors)
    (folder / "model.ckpt.index").rename(folder / "good.index")

    def read(path: pathlib.Path) -> None:
        os.replace(path, folder / "model.ckpt.index")
        try:
            bundle = Bundle(str(folder / "model.ckpt"))
            _exhaust(bundle[name].sum() for name in bundle)
        finally:
            os.replace(folder / "model.ckpt.index", path)

    return read


def _prepared(folder: pathlib.Path, rng: random.Random) -> pathlib.Path:
    lines = [text(rng, 8) if i % 6 else "" for i in range(400)]
    (folder / "corpus.txt").write_text("\n".join(lines))
    config = default_config("pretraining").replace(
        {
            "data.source": f"text:{folder / 'corpus.txt'}",
            "data.validation_share": 0.2,
            "model.vocab_size": 64,
            "phases": ((16, 1.0),),
        }
    )
    prepare(config.data, str(folder / "data"), 1, lambda line: None)
    return folder / "data"


def manifest(folder: pathlib.Path, rng: random.Random) -> Reader:
    """With the checksum of the good file, which detects every change."""
    data = _prepared(folder, rng)
    (data / "manifest.json").rename(folder / "good.json")

    def read(path: pathlib.Path) -> None:
        os.replace(path, data / "manifest.json")
        try:
            _read_rows(Manifest.load(str(data)))
        finally:
            os.replace(data / "manifest.json", path)

    return read


def shard(folder: pathlib.Path, rng: random.Random) -> Reader:
    """Without its checksum, which `prepare --verify` compares."""
    data = _prepared(folder, rng)
    found = Manifest.load(str(data))
    (length,) = found.sequence_lengths
    (file,) = found.content["splits"]["train"]["sequence_lengths"][str(length)]["files"]
    (data / file["name"]).rename(folder / "good.array_record")

    def read(path: pathlib.Path) -> None:
        os.replace(path, data / file["name"])
        file["bytes"] = (data / file["name"]).stat().st_size
        try:
            _read_rows(found)
        finally:
            os.replace(data / file["name"], path)

    return read


def _read_rows(found: Manifest) -> None:
    for length in found.sequence_lengths:
        rows = found.rows("train", length)
        rows.read(np.arange(min(len(rows), 300)))
    found.tokenizer()


def _tokenize(path: pathlib.Path) -> None:
    tokenizer = load_tokenizer(path, lowercase=True)
    tokenizer.encode("the cat sat on a mat Zürich")


def _exhaust(items: Iterator[Any]) -> None:
    collections.deque(items, maxlen=0)


KINDS: dict[str, Callable[[pathlib.Path, random.Random], Reader]] = {
    function.__name__: function
    for function in (
        *(corpus, json_lines, parquet, arrow_stream, table, quoted_table, conll, squad, config),
        *(word_pieces, sentence_pieces, safetensors, bundle_index, manifest, shard),
    )
}

# ---------------------------------------------------------------------- damage


def damage(content: bytes, others: list[bytes], rng: random.Random, is_json: bool) -> bytes:
    """Returns the content with one to four damages."""
    for _ in range(rng.randint(1, 4)):
        if is_json and rng.random() < 0.5:
            content = _other_value(content, rng)
            continue
        start = rng.randrange(len(content) + 1)
        stop = min(len(content), start + rng.choice((1, 1, 2, 8, 64, 1000)))
        piece = content[start:stop]
        other = rng.choice(others)
        cut = rng.randrange(len(other) + 1)
        new = rng.choice(
            (
                b"",
                piece * rng.choice((2, 3, 50)),
                bytes(byte ^ (1 << rng.randrange(8)) for byte in piece),
                rng.randbytes(len(piece)),
                rng.choice(ODD) + piece,
                other[cut : cut + rng.choice((1, 16, 400))],
            )
        )
        content = content[:start] + new + content[stop:]
        if rng.random() < 0.1:
            content = content[: rng.randrange(len(content) + 1)]
    return content


def _other_value(content: bytes, rng: random.Random) -> bytes:
    """Replaces, removes or doubles a value of a JSON file; unchanged if it is none any more."""
    try:
        value = json.loads(content)
    except ValueError:
        return content
    place, path = value, []
    while isinstance(place, dict | list) and place and (not path or rng.random() < 0.8):
        path.append(
            (place, rng.choice(list(place) if isinstance(place, dict) else range(len(place))))
        )
        place = path[-1][0][path[-1][1]]
    if not path:
        return json.dumps(rng.choice(VALUES)).encode()
    parent, key = path[-1]
    if rng.random() < 0.2:
        del parent[key]
    else:
        parent[key] = rng.choice((*VALUES, place if isinstance(parent, list) else [place, place]))
    return json.dumps(value).encode()


# ---------------------------------------------------------------------- the run


def try_to_read(read: Reader, path: pathlib.Path, seconds: int) -> str:
    """Returns "read", "refused", or what is wrong."""
    signal.alarm(seconds)
    try:
        read(path)
        return "read"
    except UserError as error:
        return "refused" if str(error).strip() else "an empty message"
    except OSError as error:
        return "refused" if error.strerror or error.args else "an empty message"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.alarm(0)


def run(kinds: list[str], cases: int, seed: int, seconds: int, kept: pathlib.Path) -> int:
    """Prints a line for each kind and each defect; returns the number of defects."""

    def too_long(*_: Any) -> None:
        raise TooLong(f"not done after {seconds} seconds") from None

    signal.signal(signal.SIGALRM, too_long)
    defects = 0
    with tempfile.TemporaryDirectory() as root:
        prepared = {}
        for kind in KINDS:
            (folder := pathlib.Path(root, kind)).mkdir()
            read = KINDS[kind](folder, random.Random(0))
            (good,) = folder.glob("good.*")
            prepared[kind] = read, good
            if (found := try_to_read(read, good, seconds)) != "read":
                sys.exit(f"The good file of {kind}: {found}")
        others = [good.read_bytes()[:20_000] for _, good in prepared.values()]
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        for kind in kinds:
            read, good = prepared[kind]
            content, results = good.read_bytes(), collections.Counter()
            started, rng = time.monotonic(), random.Random(f"{seed} {kind}")
            for number in range(cases // len(kinds)):
                path = good.with_stem(f"bad{number}")
                path.write_bytes(damage(content, others, rng, good.suffix == ".json"))
                found = try_to_read(read, path, seconds)
                results[found if found in ("read", "refused") else "defect"] += 1
                if found not in ("read", "refused"):
                    kept.mkdir(parents=True, exist_ok=True)
                    copy = kept / f"{kind}-{number}{good.suffix}"
                    copy.write_bytes(path.read_bytes())
                    print(f"{copy}: {found}", flush=True)
                path.unlink()
            counts = ", ".join(f"{results[name]:,} {name}" for name in sorted(results))
            print(f"{kind:16} {counts} ({time.monotonic() - started:.0f} s)", flush=True)
            defects += results["defect"]
    return defects


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=20, help="for a file")
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--kept", type=pathlib.Path, default=pathlib.Path("damaged"))
    flags = parser.parse_args()
    defects = run(flags.only.split(","), flags.cases, flags.seed, flags.seconds, flags.kept)
    print(f"{defects:,} defects")
    sys.exit(defects > 0)


if __name__ == "__main__":
    main()
