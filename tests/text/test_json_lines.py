"""JSON lines as documents, and the policy for malformed ones."""

import json

import pytest

from bert_jax.text import files as text_files
from bert_jax.text import lines as text_lines
from bert_jax.text import sources as text
from tests.text.test_sources import read

# Malformed JSON lines: (line, name of its count, the document when repaired, message).
BAD_JSON = [
    ('{"text": "One.', "malformed_json_lines", None, "invalid JSON: Unterminated string"),
    ('["One."]', "malformed_json_lines", None, "a JSON list instead of an object"),
    ('{"a": 1}', "missing_fields", None, r"no field 'text' \(data.field\) but 'a'"),
    ('{"text": 1}', "non_text_fields", None, "field 'text' is a int, not a string"),
    ('{"text": "A \\ud800 half."}', "surrogate_texts", ["A \ufffd half."], "a lone surrogate"),
    ('{"text": "a\\u0000"}', "nul_lines", ["a"], "a NUL byte"),
]


def test_malformed_json_lines_are_repaired_or_skipped_and_counted_or_named(tmp_path):
    path, good = tmp_path / "a.jsonl", '{"text": "One.\\nTwo \\ud83d\\ude00."}\n\n'
    for line, name, repaired, message in BAD_JSON:
        path.write_text(good + line)
        expected = [["One.", "Two \U0001f600."]]
        assert read(f"jsonl:{path}", on_bad_text="skip") == (expected, {name: 1})
        expected += [repaired] if repaired else []
        assert read(f"jsonl:{path}", on_bad_text="replace") == (expected, {name: 1})
        with pytest.raises(ValueError, match=f"a.jsonl:3: {message}"):
            read(f"jsonl:{path}")


def test_json_line_is_a_document_however_the_file_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "RANGE_BYTES", 10)
    monkeypatch.setattr(text, "RANGE_BYTES", 10)
    texts = [f"Number {i}. And\n\n{'more ' * i}." for i in range(30)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"body": text}) for text in texts))
    documents, _ = read(f"jsonl:{path}", field="body")
    assert documents == [[line.strip() for line in text.split("\n") if line] for text in texts]


def test_overlong_json_line_is_left_out_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(text_lines, "MAX_JSON_LINE", 100)
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "word " * 99}) + '\n{"text": "One."}\n')
    assert read(f"jsonl:{path}", on_bad_text="replace") == ([["One."]], {"overlong_lines": 1})
