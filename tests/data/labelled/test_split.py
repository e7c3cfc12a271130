"""The part of a labelled file that is held out."""

import itertools
import json
from collections import Counter

import pytest

from bert_jax.data.labelled.conll import read_tagged
from bert_jax.data.labelled.examples import Question, TaggedExample, TextExample
from bert_jax.data.labelled.questions import read_questions
from bert_jax.data.labelled.split import find_strata, held_out, small_strata, write_split
from bert_jax.data.labelled.tables import Columns, read_table
from bert_jax.files.errors import UserError


def texts(labels):
    return [
        TextExample("", str(number), f"text {number}", None, (label,))
        for number, label in enumerate(labels)
    ]


def test_each_class_has_its_share():
    labels = ["a"] * 600 + ["b"] * 300 + ["c"] * 50 + ["d"] * 4 + ["e"]
    chosen = held_out(texts(labels), 0.1, 0)
    counts = Counter(label for label, held in zip(labels, chosen, strict=True) if held)
    # The small ones together have 5 examples, and e only one, which stays in the training data.
    assert counts == {"a": 60, "b": 30, "c": 5, "d": 1}
    assert chosen != held_out(texts(labels), 0.1, 1)
    # The order of the file does not matter.
    assert (
        held_out(texts(labels)[:900][::-1], 0.1, 0) == held_out(texts(labels)[:900], 0.1, 0)[::-1]
    )


def test_each_tenth_of_the_numbers_has_its_share():
    examples = texts([str(number / 10) for number in range(200)])
    chosen = held_out(examples, 0.1, 0, are_numbers=True)
    held = [float(e.labels[0]) for e in itertools.compress(examples, chosen)]
    assert Counter(int(value // 2) for value in held) == dict.fromkeys(range(10), 2)


def test_equal_texts_contexts_and_documents_stay_together():
    same = [TextExample("", "", f"text {i // 4}", None, (str(i // 4 % 2),)) for i in range(400)]
    pairs = [TextExample("", "", f"text {i // 4}", f"{i}", (str(i % 2),)) for i in range(400)]
    asked = [Question("", str(i), f"q {i}", f"context {i // 5}") for i in range(200)]
    tagged = [TaggedExample("", str(i), (str(i),), ("O",), i // 3) for i in range(120)]
    for examples, key in (
        (same, lambda e: e.text_a),
        (pairs, lambda e: e.text_a),
        (asked, lambda e: e.context),
        (tagged, lambda e: e.document),
    ):
        chosen = held_out(examples, 0.1, 0)
        sides = {}
        for example, held in zip(examples, chosen, strict=True):
            sides.setdefault(key(example), set()).add(held)
        assert all(len(side) == 1 for side in sides.values())
        assert 0.05 <= sum(chosen) / len(chosen) <= 0.15

    few = [Question("", str(i), f"question {i}", f"context {i % 3}") for i in range(60)]
    assert sum(held_out(few, 0.1, 0)) == 6


def test_a_rare_entity_type_is_held_out_too():
    tags = [("B-PER",)] * 180 + [("B-LAW",)] * 20
    examples = [TaggedExample("", str(i), (str(i),), tag, i) for i, tag in enumerate(tags)]
    held = [e.tags[0] for e in itertools.compress(examples, held_out(examples, 0.1, 0))]
    assert Counter(held) == {"B-PER": 18, "B-LAW": 2}


def split(tmp_path, source, examples, has_header=True):
    chosen = [number % 3 == 0 for number in range(len(examples))]
    return write_split(str(source), examples, chosen, has_header, str(tmp_path / "parts"))


def test_parts_of_objects_keep_their_fields(tmp_path):
    source, rows = tmp_path / "a.jsonl", [{"text": f"é{i}", "label": "x", "n": i} for i in range(4)]
    source.write_text("\n".join(map(json.dumps, rows)))
    examples = list(read_table(str(source), Columns("text", label="label"), Counter()))
    _, evaluate = split(tmp_path, source, examples)
    with open(evaluate) as file:
        assert [json.loads(line) for line in file] == [rows[0], rows[3]]


@pytest.mark.parametrize("has_header", [True, False])
def test_tables_keep_their_columns(tmp_path, has_header):
    source = tmp_path / "a.csv"
    rows = ['x;"one, ""two"";\nthree";note', "y;four;", "x;five;n"]
    source.write_text("\n".join(["label;text;more"] * has_header + rows) + "\n")
    columns = Columns("text", label="label") if has_header else Columns(1, label=0)
    read = lambda path: [(e.text_a, e.labels) for e in read_table(str(path), columns, Counter())]  # noqa: E731
    whole = read(source)
    train, evaluate = split(
        tmp_path, source, list(read_table(str(source), columns, Counter())), has_header
    )
    assert read(train) == whole[1:] and read(evaluate) == whole[:1]
    with open(evaluate) as file:
        assert file.readline() == ("label,text,more\n" if has_header else 'x,"one, ""two"";\n')


def test_sentences_and_questions_are_read_back_as_they_were(tmp_path):
    conll = tmp_path / "a.conll"
    conll.write_text("EU X B-ORG\nwon Y O\n\nPeter X B-PER\n\nhome Y O\n")
    tagged = list(read_tagged(str(conll), Counter()))
    train, _ = split(tmp_path, conll, tagged)
    shown = lambda es: [(e.id, e.words, e.tags) for e in es]  # noqa: E731
    assert shown(read_tagged(train, Counter())) == shown(tagged[1:])

    asked = [Question("", f"q{i}", "Who?", f"It was Bo {i}.", (("Bo", 7),)) for i in range(3)]
    asked.append(Question("", "q3", "Where?", "Nobody knows.", (), True))
    train, _ = split(tmp_path, "a.json", asked)
    back = [(q.id, q.question, q.context, q.answers) for q in read_questions(train, Counter())]
    assert back == [(q.id, q.question, q.context, q.answers) for q in asked[1:3]]


def test_an_answer_that_is_not_found_is_not_found_again(tmp_path):
    """With -1 as its offset, the first of three places would be taken."""
    context = "1998 and 1998 and, much later in this long text about a year, 1998 and so on."
    answers = [{"text": "1998", "answer_start": 1000}]
    rows = [{"id": n, "question": "when", "context": context, "answers": answers} for n in range(3)]
    (path := tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = list(read_questions(str(path), Counter()))
    train, _ = split(tmp_path, "a.jsonl", asked)
    assert [q.answers for q in asked[1:]] == [(("1998", -1),)] * 2
    assert [q.answers for q in read_questions(train, Counter())] == [(("1998", -1),)] * 2


def test_small_classes_have_a_share_together():
    examples = texts([str(number % 77) for number in range(308)])
    chosen = held_out(examples, 0.1, 0)
    assert sum(chosen) == 31
    left = {e.labels for e, held in zip(examples, chosen, strict=True) if not held}
    assert len(left) == 77
    assert len(small_strata(find_strata(examples, False), 0.1)) == 77
    with pytest.raises(UserError, match="None of the 12 examples can be held out, since each"):
        held_out(texts(map(str, range(12))), 0.1, 0)
    with pytest.raises(UserError, match="9 examples are too few to hold some out"):
        held_out(texts(["a", "b", "c"] * 3), 0.5, 0)


def test_rows_of_words_and_rows_that_were_left_out(tmp_path):
    (source := tmp_path / "words.csv").write_text(
        "Sentence #,Word,Tag\n" + "".join(f"{n // 2},w{n},{'OB'[n % 2]}\n" for n in range(8))
    )
    columns = {"words": "Word", "tags": "Tag", "sentence": "Sentence #"}
    tagged = list(read_tagged(str(source), Counter(), **columns))
    assert [(e.id, e.words, e.tags) for e in tagged[:2]] == [
        ("0", ("w0", "w1"), ("O", "B-_")), ("1", ("w2", "w3"), ("O", "B-_")),
    ]  # fmt: skip
    chosen, folder = [True, False, False, False], str(tmp_path / "parts")
    train, _ = write_split(str(source), tagged, chosen, True, folder, "Word", "Tag")
    back = read_tagged(train, Counter(), **columns)
    assert [e.words for e in back] == [e.words for e in tagged[1:]]

    (source := tmp_path / "texts.csv").write_text("text,label\na,x\nb,\nc,y\n,x\nd,y\n")
    how = {"columns": Columns("text", label="label"), "on_missing": "skip"}
    examples = list(read_table(str(source), counts=Counter(), **how))
    train, evaluate = write_split(str(source), examples, [False, True, False], True, folder)
    read = [[e.text_a for e in read_table(p, counts=Counter(), **how)] for p in (train, evaluate)]
    assert read == [["a", "d"], ["c"]]
