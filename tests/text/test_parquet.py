"""Parquet files and folders of Hugging Face `datasets` as documents and rows."""

import json
import pickle
from collections import Counter

import pyarrow as pa
import pytest

from bert_jax.text import parquet as parquet_text
from bert_jax.text.arrow_tables import Table, is_table, read_rows
from bert_jax.text.sources import make_source
from tests.text.arrow_files import make_table, save_to_disk, write_parquet
from tests.text.test_sources import CONFIG, read

TEXTS = [f"Row {i} is here.\n\nIt has\ntwo or three lines \U0001f600." for i in range(40)]
TEXTS[3], TEXTS[8] = "", "A CR.\r\nA NUL\0."


def write_json_lines(path, texts) -> str:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return f"jsonl:{path}"


def write_shards(folder) -> str:
    for number in range(3):
        part = make_table({"text": TEXTS[number * 14 : number * 14 + 14]})
        write_parquet(folder / f"train-{number:05d}-of-00003.parquet", part)
    return str(folder)


FORMS = {
    "file": lambda folder: write_parquet(folder / "a.parquet", make_table({"text": TEXTS})),
    "shards": write_shards,
    "save_to_disk": lambda folder: save_to_disk(folder / "set", make_table({"text": TEXTS})),
    "dictionary": lambda folder: write_parquet(
        folder / "a.parquet",
        pa.table({"text": pa.array(TEXTS, pa.large_string()).dictionary_encode()}),
    ),
}


@pytest.mark.parametrize("range_bytes", [1, 600, 1 << 22])
@pytest.mark.parametrize("form", FORMS)
def test_documents_are_those_of_json_lines_however_they_are_cut(
    form, range_bytes, tmp_path, monkeypatch
):
    path = FORMS[form](tmp_path)
    monkeypatch.setattr(parquet_text, "RANGE_BYTES", range_bytes)
    expected = read(write_json_lines(tmp_path / "a.jsonl", TEXTS), on_bad_text="replace")
    assert read(f"parquet:{path}", on_bad_text="replace") == expected
    source = make_source(CONFIG.replaced({"source": f"parquet:{path}"}))
    chunks = pickle.loads(pickle.dumps(source)).chunks()
    assert chunks == source.chunks()
    assert range_bytes > 1 or len(chunks) > 5


def test_a_column_is_chosen_and_files_are_taken_once_and_in_order(tmp_path):
    for name in "ba":
        table = make_table({"body": [f"{name} one.", f"{name} two."], "n": [1, 2]})
        write_parquet(tmp_path / f"{name}.parquet", table)
    documents, counts = read(f"parquet:{tmp_path}/*.parquet,{tmp_path}", field="body")
    assert documents == [["a one."], ["a two."], ["b one."], ["b two."]] and not counts


def test_malformed_rows_follow_the_policy_and_are_named(tmp_path):
    values = [b"One.", None, b"B\xff.", b"Two\0."]
    path = write_parquet(tmp_path / "a.parquet", make_table({"text": values}), rows=2)
    repaired, counts = read(f"parquet:{path}", on_bad_text="replace")
    assert repaired == [["One."], ["B\ufffd."], ["Two."]]
    assert counts == {"non_text_fields": 1, "invalid_utf8_lines": 1, "nul_lines": 1}
    assert read(f"parquet:{path}", on_bad_text="skip") == ([["One."]], counts)
    with pytest.raises(ValueError, match="a.parquet, row 1: column 'text' is null"):
        read(f"parquet:{path}", on_bad_text="error")


def test_a_large_row_group_is_read_a_few_rows_at_a_time(tmp_path):
    texts = [f"{i} {'word ' * 200}" for i in range(20_000)]  # 20 MB, in pages of 1 MB
    table = make_table({"text": texts, "other": texts})
    for path in (
        write_parquet(tmp_path / "a.parquet", table, rows=len(texts)),
        save_to_disk(tmp_path / "set", table, files=1, rows=len(texts))
        + "/data-00000-of-00001.arrow",
    ):
        before, most, number = pa.total_allocated_bytes(), 0, 0
        for number, text in Table(path).texts("text", 0, 1):
            most = max(most, pa.total_allocated_bytes() - before)
            assert text is not None and text.startswith(f"{number} ".encode())
        assert number == len(texts) - 1 and most < 6_000_000


def test_errors(tmp_path):
    table = make_table({"text": ["One."], "n": [1], "body": ["Two."]})
    path = write_parquet(tmp_path / "a.parquet", table)
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 or not")
    (tmp_path / "damaged.arrow").write_bytes(b"ARROW1 or not")
    (tmp_path / "a.csv").write_text("text\nOne.\n")
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    (tmp_path / "none").mkdir()
    empty = write_parquet(tmp_path / "empty.parquet", table.slice(0, 0))
    cases = [
        (f"{tmp_path}/lost", "text", "No file or folder matches '.*lost' in data.source"),
        (path, "title", "data.field='title' is not a column of .* Columns with text: text, body"),
        (path, "n", "data.field='n' of .* is int64, not text"),
        (f"{tmp_path}/damaged.parquet", "text", "damaged.parquet is damaged, or neither Parquet"),
        (f"{tmp_path}/damaged.arrow", "text", "damaged.arrow is damaged, or neither Parquet"),
        (f"{tmp_path}/a.csv", "text", "a.csv is not a Parquet file: its name must end in .parq"),
        (f"{tmp_path}/splits", "text", r"several splits \(train, test\): name one, .*/SPLIT"),
        (
            f"{tmp_path}/none",
            "text",
            "none has no .parquet files, and is not a folder written by save_to",
        ),
        (empty, "text", "There are no rows in data.source="),
    ]
    for source, field, message in cases:
        with pytest.raises(ValueError, match=message):
            read(f"parquet:{source}", field=field)


def test_rows_of_the_package_datasets(tmp_path):
    """Classes are numbers in the files, and names in the rows."""
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["bad", "good"])
    kinds = {"text": datasets.Value("string"), "label": label, "tags": datasets.List(label)}
    values = {"text": ["a", "b", "c"], "label": [1, 0, -1], "tags": [[0, 1], [], [1]]}
    made = datasets.Dataset.from_dict(values, datasets.Features(kinds))
    datasets.DatasetDict({"train": made}).save_to_disk(str(tmp_path / "set"))
    made.to_parquet(str(tmp_path / "a.parquet"))
    expected = [
        {"text": "a", "label": "good", "tags": ["bad", "good"]},
        {"text": "b", "label": "bad", "tags": []},
        {"text": "c", "label": None, "tags": ["good"]},
    ]
    for path in (str(tmp_path / "set" / "train"), str(tmp_path / "a.parquet")):
        assert is_table(path)
        assert [row for _, row in read_rows(path)] == expected
        source = make_source(CONFIG.replaced({"source": f"parquet:{path}"}))
        documents = [d for chunk in source.chunks() for d in source.read(chunk, Counter())]
        assert documents == [["a"], ["b"], ["c"]]
