"""The commands that read trained models: what they print and write, and what they refuse."""

import json
import math
import re

import numpy as np
import pytest
from pyarrow import parquet

from bert_jax.__main__ import main as run_command
from bert_jax.data.labelled.texts import Text
from bert_jax.inference.attention import AttentionReader
from bert_jax.inference.model import load
from bert_jax.inference.scoring import Scorer
from bert_jax.scores.attention import STATISTICS
from bert_jax.tools.cli.score import write_scores
from bert_jax.tools.pages.attention import encode_weights
from tests.inference.conftest import SCORED_TEXTS, open_model
from tests.test_main import WITHOUT_JAX, start

INVALID = {
    "encode --model=WORKDIR setup.py": {
        "--output=x.npz --truncate --windows": "--truncate and --windows exclude each other.",
        "--output=x.npz --stride=3": "stride=3 is for long=windows, and at least 1.",
        "--output=x.npz --pooling=max --level=word": "--pooling is for --level=sentence, but -",
        "--output=x.npz --weights=1,a": "--weights=1,a are not numbers: give for example 0.1,0.2",
        "--output=x.npz --layers=lst": "layers=lst must be one of last, second_to_last,",
        "--output=x.xlsx": "--output=x.xlsx: the ending says the form, .npz, .safetensors, .jsonl",
        "--output=lost/x.npz": "--output=lost/x.npz: there is no folder lost.",
    },
    "attention --model=WORKDIR": {
        "": "Give a text, for example",
        "a b c": "3 texts are given: give one, or the two of a pair.",
        "--held_out=5 --input=setup.py": "--held_out and --input are two samples",
        "is --output=x.svg": "--output=x.svg: the ending says the form, .html",
    },
    "score --model=WORKDIR": {"is --output=x.csv": "--output=x.csv: the ending says the form"},
    "predict --model=WORKDIR": {
        "is --output=x.xlsx": "--output=x.xlsx: the ending says the form, .jsonl",
        "lost.ods": "lost.ods is a spreadsheet, not text: save it as CSV",
    },
    "fill_mask --model=WORKDIR": {
        "[MASK] --output=x.txt": "--output=x.txt: the ending says the form, .jsonl",
        "[mask]": "There is no [MASK] in '[mask]': write [MASK], in capitals.",
    },
}


def test_an_invalid_value_is_reported_in_one_line_without_jax(workdir):
    expected = {f"{c} {words}": m for c, rows in INVALID.items() for words, m in rows.items()}
    lines = [line.replace("WORKDIR", workdir).split() for line in expected]
    done = start("-c", WITHOUT_JAX, stdin=json.dumps(lines))
    assert done.returncode == 0, done.stderr
    for (code, out, err), message in zip(json.loads(done.stdout), expected.values(), strict=True):
        assert (code, out) == (2, ""), err
        assert err.startswith(f"error: {message}") and err.count("\n") == 1


def test_tables_give_their_column_of_texts_and_results_are_parquet(workdir, tmp_path, capsys):
    texts = ["the list is returned .", "naive list", "is the list naive ?"]
    (source := tmp_path / "in.csv").write_text(
        "id,review,stars\n" + "".join(f"{n},{text},{n}\n" for n, text in enumerate(texts))
    )
    expected = load(workdir, dtype="float32")
    for command in ("encode", "score"):
        output = tmp_path / f"{command}.parquet"
        files = [f"--model={workdir}", f"{source}", f"--output={output}"]
        run_command([command, *files, *["--config.dtype=float32"]])
        assert f"texts      column 'review' of {source}\n" in capsys.readouterr().err
    vectors = parquet.read_table(tmp_path / "encode.parquet")["embeddings"]
    assert str(vectors.type.value_type) == "float"
    np.testing.assert_allclose(vectors.to_pylist(), expected.encode(texts), atol=1e-6)
    scores = parquet.read_table(tmp_path / "score.parquet").to_pylist()
    assert [s["tokens"] for s in scores] == [s["tokens"] for s in expected.score(texts)]
    run_command(["score", f"--model={workdir}", f"{source}", "--column=stars"])
    assert [line[-1] for line in capsys.readouterr().out.splitlines()[1:4]] == ["0", "1", "2"]


PAIR = Text("Unaffable [MASK] is returned.", "the [MASK] , naive")


def test_attention_is_a_page_or_the_arrays(workdir, tmp_path, capsys):
    reader = AttentionReader(open_model(workdir), top_k=3)
    arrays = reader.read(reader.encode(PAIR))
    for name in ("a.npz", "a.html"):
        words = [f"--model={workdir}", PAIR.text_a, str(PAIR.text_b), "--top_k=3"]
        run_command(["attention", *words, f"--output={tmp_path / name}"])
    with np.load(tmp_path / "a.npz") as found:
        assert {name: found[name].tolist() for name in found} == {
            name: array.tolist() for name, array in arrays.items()
        }
    page = (tmp_path / "a.html").read_text()
    assert encode_weights(arrays["attention"]) in page
    printed = capsys.readouterr().out
    values = arrays["text_statistics"][list(STATISTICS).index("next")]
    layer, head = np.unravel_index(values.argmax(), values.shape)
    line = next(line for line in printed.splitlines() if "next token" in line)
    assert f"layer {layer + 1} head {head + 1} {values.max():.3f}," in line
    assert "attention                float32[4, 2, 16, 16]" in printed


@pytest.fixture(scope="module")
def scorer(workdir) -> Scorer:
    return Scorer(open_model(workdir, batch_tokens=128))


def test_a_file_of_scores_has_a_line_for_each_text(scorer, tmp_path, capsys):
    path = tmp_path / "scores.jsonl"
    write_scores(scorer, lambda: SCORED_TEXTS, str(path))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == list(scorer.score(map(scorer.row, SCORED_TEXTS)))
    printed = capsys.readouterr().out
    assert f"6 texts scored in {path}: " in printed
    total = sum(row["pseudo_log_likelihood"] for row in rows)
    tokens = sum(row["tokens"] for row in rows)
    assert f"all {tokens} tokens together: perplexity" in printed
    assert float(printed.split()[-1]) == pytest.approx(math.exp(-total / tokens), abs=0.06)


def test_the_table_has_a_line_for_each_text(scorer, capsys):
    write_scores(scorer, lambda: SCORED_TEXTS, "")
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["PLL", "per", "token", "tokens", "perplexity", "text"]
    assert [line.split()[2] for line in lines[:6]] == ["7", "0", "20", "7", "8", "1"]
    assert lines[0].endswith("The list is returned.")
    assert lines[1].split()[1:4] == ["-", "0", "-"]
    assert lines[4].endswith("the list | is naive , returned")


@pytest.fixture(scope="module")
def language_model(make_run) -> str:
    return make_run("left_to_right", model__vocab_size=20)[1]


def test_the_command_prints_a_text_for_each_sample(language_model, capsys):
    words = ["generate", f"--model={language_model}", "--max_new_tokens=6", "The list", "is"]
    run_command([*words, "--num_samples=2", "--seed=4", "--top_p=0.9"])
    first = capsys.readouterr().out
    texts = [block for block in first.split("\n\n") if block.strip()]
    assert len(texts) == 4
    assert all(text.strip().startswith("the list") for text in texts[:2])
    run_command([*words, "--num_samples=2", "--seed=4", "--top_p=0.9"])
    assert capsys.readouterr().out == first
    run_command([*words, "--greedy"])
    assert capsys.readouterr().out.strip().startswith("the list")


BAD = {
    ("--max_new_tokens=38", "the list"): (
        "The prompt 'the list' has 3 tokens, and 38 new ones are above the 40 positions of the"
        " model: set max_new_tokens=37 or less."
    ),
    ("the " * 50,): "has 51 tokens, and 50 new ones are above the 40 positions of the model: short",
    ("--greedy", "--num_samples=3", "a"): "--greedy gives the same text 3 times: leave out --num_",
    ("--top_p=2", "a"): "top_p=2.0 must be above 0",
}


@pytest.mark.parametrize("words, message", BAD.items(), ids=str)
def test_what_cannot_be_generated_is_refused(language_model, words, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        run_command(["generate", f"--model={language_model}", *words])
    assert "\n" not in str(error.value)


def test_texts_are_tokenized_as_a_model_does(workdir, capfd):
    run_command(["tokenize", f"--model={workdir}", "is list", "[MASK] is"])
    tokenizer = load(workdir).tokenizer
    expected = [tokenizer.encode(text) for text in ("is list", "[MASK] is")]
    printed = capfd.readouterr().out.splitlines()
    assert [[int(word) for word in line.split()] for line in printed] == expected
