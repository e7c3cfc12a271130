"""GLUE's own files with their irregularities, the Chinese sets, and submissions."""

from collections import Counter

import pytest

from bert_jax.data.labelled.published_sets import CHINESE, GLUE

MNLI = "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse"
MNLI += "\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2"
MNLI_ROW = '0\t1\t1e\tfiction\t(\t(\t(ROOT\t(ROOT\tA "quote.\tB.'
STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
LABELS = "\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5"
XNLI = "language\tgold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse"
XNLI += "\tsentence2_parse\tsentence1\tsentence2\tpromptID"
XNLI_ROWS = "ar\tneutral\t\t\t\t\tx\ty\t1\nzh\tneutral\t\t\t\t\t\u524d\t\u540e\t1\n"
MRPC = "\t#1 ID\t#2 ID\t#1 String\t#2 String"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
AX = "Logic\tKnowledge\tDomain\tPremise\tHypothesis\tLabel"

# task, split, its file, the result for each row: (id, text_a, text_b, label)
FILES = [
    ("cola", "train", "gj04\t1\t\tOur friends.\ncj99\t0\t*\tThe \"box\n", [
        ("0", "Our friends.", None, "acceptable"), ("1", 'The "box', None, "unacceptable")]),
    ("cola", "test", "index\tsentence\n0\tBill whistled.\n", [("0", "Bill whistled.", None, None)]),
    ("sst2", "train", "sentence\tlabel\nhide new secretions \t0\n", [
        ("0", "hide new secretions ", None, "negative")]),
    ("sst2", "test", "index\tsentence\n5\tuneasy\n", [("5", "uneasy", None, None)]),
    ("mrpc", "train", f"\ufeffQuality{MRPC}\r\n1\t7\t8\tAmrozi \"\tHe\r\n",
        [("0", 'Amrozi "', "He", "equivalent")]),
    ("mrpc", "test", f"index{MRPC}\n3\t7\t8\tPCCW\tIt\n", [
        ("3", "PCCW", "It", None)]),
    ("qqp", "train", f"{QQP}\n9\t1\t2\tHow?\tWhat?\t1\n", [
        ("9", "How?", "What?", "duplicate")]),
    ("qqp", "test", "id\tquestion1\tquestion2\n4\tHow?\tWhat?\n", [("4", "How?", "What?", None)]),
    ("stsb", "train", f"{STSB}\tscore\n6\tg\tf\t2012\t1\tnone\tnone\tA.\tB.\t3.800\n", [
        ("6", "A.", "B.", "3.800")]),
    ("stsb", "test", f"{STSB}\n6\tg\tf\t2012\t1\tnone\tnone\tA.\tB.\n", [("6", "A.", "B.", None)]),
    ("mnli", "train", f"{MNLI}\tlabel1\tgold_label\n{MNLI_ROW}\tneutral\tentailment\n", [
        ("0", 'A "quote.', "B.", "entailment")]),
    ("mnli", "validation_mismatched",
        f"{MNLI}{LABELS}\tgold_label\n{MNLI_ROW}"
        + "\tneutral" * 6 + "\n",
        [("0", 'A "quote.', "B.", "neutral")]),
    ("mnli", "test_matched", f"{MNLI}\n{MNLI_ROW}\n", [("0", 'A "quote.', "B.", None)]),
    ("qnli", "train", "index\tquestion\tsentence\tlabel\n2\tWhen?\tIt.\tnot_entailment\n", [
        ("2", "When?", "It.", "not_entailment")]),
    ("rte", "train", "index\tsentence1\tsentence2\tlabel\n1\tNo.\tYes.\tentailment\n", [
        ("1", "No.", "Yes.", "entailment")]),
    ("wnli", "train", "index\tsentence1\tsentence2\tlabel\n1\tI.\tYou.\t1\n", [
        ("1", "I.", "You.", "entailment")]),
    ("ax", "test", "index\tsentence1\tsentence2\n0\tThe cat.\tThe mat.\n", [
        ("0", "The cat.", "The mat.", None)]),
    ("mnli", "test_diagnostic", "index\tsentence1\tsentence2\n0\tThe cat.\tThe mat.\n", [
        ("0", "The cat.", "The mat.", None)]),
    ("ax", "validation", f"{MNLI}\tlabel1\tgold_label\n{MNLI_ROW}\tneutral\tentailment\n", [
        ("0", 'A "quote.', "B.", "entailment")]),
    ("ax", "validation", f"{AX}\n\t\tNews\tP.\tH.\tneutral\n",
        [("0", "P.", "H.", "neutral")]),
    ("xnli", "train", "premise\thypo\tlabel\n\u524d\t\u540e\tcontradictory\n", [
        ("0", "\u524d", "\u540e", "contradiction")]),
    ("xnli", "validation", f"{XNLI}\n{XNLI_ROWS}", [
        ("0", "\u524d", "\u540e", "neutral")]),
    ("chnsenticorp", "train", "label\ttext_a\n1\t\u597d\n", [("0", "\u597d", None, "positive")]),
    ("chnsenticorp", "validation", "0\t\u574f\n", [("0", "\u574f", None, "negative")]),
    ("lcqmc", "train", "text_a\ttext_b\tlabel\n\u524d\t\u540e\t0\n", [
        ("0", "\u524d", "\u540e", "not_duplicate")]),
    ("lcqmc", "validation", "\u524d\t\u540e\t1\n", [("0", "\u524d", "\u540e", "duplicate")]),
]  # fmt: skip
TASKS = GLUE | CHINESE


@pytest.mark.parametrize(
    "name, split, content, expected", FILES, ids=[f"{name}-{split}" for name, split, *_ in FILES]
)
def test_published_files(tmp_path, name, split, content, expected):
    task = TASKS[name]
    place = tmp_path / f"{split}.tsv"
    place.write_bytes(content.encode())
    labelled = expected[0][3] is not None
    examples = list(task.read(str(place), Counter(), labelled))
    assert [
        (e.id, e.text_a, e.text_b, e.labels[0] if e.labels else None) for e in examples
    ] == expected
    # Without their labels the same examples are there.
    plain = list(task.read(str(place), Counter(), labelled=False))
    assert [(e.id, e.text_a, e.text_b) for e in plain] == [row[:3] for row in expected]


def test_broken_rows_of_qqp_are_left_out_and_counted(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text(f"{QQP}\n1\t1\t2\tHow\n is it?\tWhy?\t0\n2\t3\t4\tWho?\t\t1\tmore\n")
    examples = list(GLUE["qqp"].read(str(path), counts := Counter()))
    assert [(e.id, e.text_b) for e in examples] == [("2", "")]
    assert +counts == {"broken_rows": 2, "long_rows": 1, "empty_texts": 1}


@pytest.mark.parametrize(
    "name, content, message",
    [
        (
            "rte",
            "index\tsentence1\tlabel\n",
            r"line 1: no columns \['sentence1', 'sentence2', 'lab",
        ),
        ("rte", "index\tsentence1\tsentence2\tlabel\n", "has no examples"),
        ("cola", "gj04\t2\t\tx\n", "line 1: unknown label '2'. Available: unacceptable, acce"),
        ("stsb", f"{STSB}\tscore\n6\tg\tf\t2\t1\tn\tn\tA.\tB.\t5.1\n", "'5.1' is not a number fr"),
    ],
)
def test_errors(tmp_path, name, content, message):
    (tmp_path / "f.tsv").write_text(content)
    with pytest.raises(ValueError, match=message):
        list(GLUE[name].read(str(tmp_path / "f.tsv"), Counter()))


def test_a_set_without_dataset_is_read_from_files():
    with pytest.raises(ValueError, match="this set is read from its published files only"):
        CHINESE["lcqmc"].read("tfds:lcqmc", Counter())
