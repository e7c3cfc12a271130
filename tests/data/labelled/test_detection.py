"""What a file of labelled examples is for, by names and by content."""

import json

import pytest

from bert_jax.data.labelled.detection import detect
from bert_jax.files.errors import UserError
from tests.data.labelled.public_forms import FORMS

CONLL = "EU B-ORG\nrejects O\n\nPeter B-PER\nspoke O\n"
POS = "the DT\ndog NN\n\nruns VB\nhome NN\n"
SQUAD = {"data": [{"title": "t", "paragraphs": [{"context": "c", "qas": []}]}]}
WORDS = {"tokens": ["EU", "won"], "ner_tags": ["B-ORG", "O"]}


def objects(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def csv(header, rows, times=8):
    return "\n".join([header, *rows * times]) + "\n"


def found(detection, *names):
    """Returns the task and the values of fields."""
    return detection.task, *(detection.fields.get(name) for name in names)


COLUMNS = ("task.text_a", "task.text_b", "task.label")
LONG, SHORT = "a long story about the sea", "it ended well in the harbour"


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("a.csv", csv("review,stars", [f"{LONG},5", f"{SHORT},1"]), ("review", "", "stars")),
        ("a.csv", csv("text;label", [f"{LONG};x", f"{SHORT};y"]), ("text", "", "label")),
        ("a.tsv", csv("premise\thypothesis\tlabel", ["a b\tc d\tx", "e\tf\ty"]),
         ("premise", "hypothesis", "label")),
        # no usual names: the longest texts, and what repeats
        ("a.csv", csv("nr,what,kind", [f"{n},{LONG} {n},{'xy'[n % 2]}" for n in range(8)], 1),
         ("what", "", "kind")),
        # another text is the second one of a pair
        ("a.tsv", "question\tparagraph\tlabel\n" + "".join(
            f"What of {i}?\t{LONG} {i}\t{'yn'[i % 2]}\n" for i in range(8)),
         ("question", "paragraph", "label")),
        # no header
        ("a.tsv", csv(f"{LONG}\tgood", [f"{SHORT}\tbad", f"{LONG}!\tgood"]), ("0", "", "1")),
        ("a.csv", csv(f"pos,{LONG}", [f"neg,{SHORT}", f"pos,{LONG}!"]), ("1", "", "0")),
        ("a.jsonl", objects(*[{"text": LONG, "label": "x"}, {"text": SHORT, "label": "y"}] * 4),
         ("text", "", "label")),
    ],
)  # fmt: skip
def test_columns_of_tables_are_found(tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_text(content)
    assert found(detect(str(path), {}), *COLUMNS) == ("classification", *expected)


@pytest.mark.parametrize(
    "labels, task, fields",
    [
        (["good", "bad"], "classification", {"metrics": ("accuracy", "macro_f1")}),
        (["good"] * 5 + ["bad"], "classification", {"metrics": ("macro_f1", "accuracy")}),
        (["1", "2", "3", "4", "5"], "classification", {"task.problem_type": "single"}),
        (["0.5", "1.5", "3"], "regression", {"metrics": ("pearson", "spearman")}),
        (list(map(str, range(0, 120, 3))), "regression", {"task.problem_type": "regression"}),
        (["sea,love", "love", "sea,war", "war", "war,love"], "multi_label",
         {"task.label_separator": ",", "task.problem_type": "multi"}),
    ],
)  # fmt: skip
def test_the_kind_of_labels_follows_from_their_values(tmp_path, labels, task, fields):
    path = tmp_path / "a.tsv"
    rows = [f"text {number} of many words\t{label}" for number, label in enumerate(labels * 4)]
    path.write_text("\n".join(["text\tlabel", *rows]))
    detection = detect(str(path), {})
    assert detection.task == task
    assert fields.items() <= detection.fields.items()


def test_columns_of_zeros_and_ones_are_several_labels(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(csv("id,comment_text,toxic,rude", [f"1,{LONG},0,1", f"2,{SHORT},0,0"]))
    detection = detect(str(path), {})
    assert found(detection, "task.text_a", "task.label", "task.id") == (
        "multi_label", "comment_text", "toxic,rude", "id",
    )  # fmt: skip


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("a.conll", CONLL, ("tagging", None, None)),
        ("a.txt", CONLL.replace(" ", "\t"), ("tagging", None, None)),
        ("a.conll", POS, ("tagging", None, False)),
        ("a.jsonl", objects(WORDS), ("tagging", "ner_tags", None)),
        ("a.json", json.dumps(SQUAD, indent=1), ("span", None, None)),
        ("a.jsonl", objects({"question": "q", "context": "c", "answers": []}),
         ("span", None, None)),
        ("a.csv", csv("sent1,sent2,ending0,ending1,label", ["a,b,c,d,0", "a,b,c,d,1"]),
         ("multiple_choice", "label", None)),
    ],
)  # fmt: skip
def test_other_tasks_are_known_by_the_form_of_their_files(tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_text(content)
    assert found(detect(str(path), {}), "task.label", "task.entities") == expected


@pytest.mark.parametrize(
    "header, row, task, expected",
    [
        ("anchor\tpositive", "a b\tc d", "", ("anchor", "positive", None, None)),
        ("id\tAnchor\tPositive\tnegative", "1\ta\tb\tc", "",
         ("Anchor", "Positive", None, "negative")),
        ("query\tpositive\tscore", "a\tb\t0.5", "", ("query", "positive", "score", None)),
        ("sentence1\tsentence2\tscore", "a\tb\t3", "embedding",
         ("sentence1", "sentence2", "score", None)),
        ("sentence1\tsentence2\tlabel", "a\tb\tneutral", "embedding",
         ("sentence1", "sentence2", None, None)),
    ],
)  # fmt: skip
def test_pairs_of_texts_are_to_embed(tmp_path, header, row, task, expected):
    path = tmp_path / "a.tsv"
    path.write_text(csv(header, [row]))
    detection = detect(str(path), {}, task)
    assert found(detection, *COLUMNS, "task.negative") == ("embedding", *expected)
    assert detection.fields.get("task.loss") == (expected[2] and "cosent")
    assert detection.fields.get("task.id") == ("id" if header.startswith("id") else None)


def test_scored_pairs_are_numbers_unless_embeddings_are_asked_for(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text(csv("sentence1\tsentence2\tscore", ["a\tb\t0.5", "c\td\t1.5"]))
    assert detect(str(path), {}).task == "regression"
    assert detect(str(path), {}, "embedding").task == "embedding"
    path.write_text(csv("anchor\tpositive", ["a b\tx", "c d\ty"]))
    assert detect(str(path), {"task.text_a": "anchor"}).task == "classification"
    path.write_text(csv("text\tlabel", ["a b\tx", "c d\ty"]))
    with pytest.raises(UserError, match="has no pairs of texts among 'text', 'label': name their"):
        detect(str(path), {}, "embedding")


@pytest.mark.parametrize(
    "file, content, expected",
    [(f, c, tuple(e)) for _, f, c, *e in FORMS],
    ids=[f[0] for f in FORMS],
)
def test_forms_of_public_tables(tmp_path, file, content, expected):
    (path := tmp_path / file).write_text(content)
    assert found(detect(str(path), {}), *COLUMNS) == expected


TAGGED = {"task.text_a": "Word", "task.label": "Tag", "task.id": "Sentence #"}
PLAIN = {"task.entities": False, "metrics": ("accuracy",)}


@pytest.mark.parametrize(
    "name, content, fields",
    [
        ("a.bio", "O\tare\nB-ACTOR\tann\nI-ACTOR\tsmith\n",
         {"task.text_a": "1", "task.label": "0"}),
        ("a.conll", "# id = 1\n# text = x\nAnn B-PER\nsaw O\n", {}),
        ("a.conll", "Ann B-PER\rsaw O\r\rBob B-PER\r", {}),
        ("a.conll", "the\tDET\ncat\tNOUN\n\nit\tPRON\nruns\tVERB\n", PLAIN),
        ("a.conllu", "# x = 1\n1-2\tdu" + "\t_" * 8 + "\n1\tde\tde\tADP" + "\t_" * 6 + "\n",
         {"task.text_a": "1", "task.label": "3", **PLAIN}),
        ("a.jsonl", objects({"tokens": list("abcd"), "tags": ["DET", "NOUN", "VERB", "ADP"]}),
         {"task.text_a": "tokens", "task.label": "tags", **PLAIN}),
        ("a.csv", "Sentence #,Word,POS,Tag\nSentence: 1,In,IN,O\n,Rome,NNP,B-geo\n", TAGGED),
        ("a.csv", "text,labels\nAnn saw Rome,B-PER O B-LOC\nso it is,O O O\n",
         {"task.text_a": "text", "task.label": "labels"}),
        ("a.csv", "tokens,ner\n\"['Ann', 'ran']\",\"['B-PER', 'O']\"\n",
         {"task.text_a": "tokens", "task.label": "ner"}),
        ("a.jsonl", objects({"text": "Ann saw Rome.", "relations": [], "entities": [
            {"id": 3, "label": "PER", "start_offset": 0, "end_offset": 3}]}),
         {"task.text_a": "text", "task.label": "entities"}),
        ("a.json", json.dumps([{"context": "c", "qas": [{"id": "1", "question": "q"}]}]), {}),
        ("a.csv", "question,context,answer,answer_start\nWho?,Ann ran.,Ann,0\n", {}),
    ],
)  # fmt: skip
def test_words_and_questions_in_other_forms(tmp_path, name, content, fields):
    (path := tmp_path / name).write_bytes(content.encode())
    detection = detect(str(path), {})
    assert detection.task == ("span" if "uestion" in content else "tagging")
    assert detection.fields == fields


@pytest.mark.parametrize(
    "content, message",
    [
        (csv("text,label", [f"{LONG},pos"]), "all 8 labels are 'pos'"),
        (csv("text,price", [f"{LONG},2.5", f"{SHORT},2.5"]), "no column of labels"),
        (csv("text,label", [f"{LONG},2.5", f"{SHORT},2.5"]), "all 16 numbers are 2.5"),
        (csv("text,kind,topics", [f"{LONG},x,1", f"{SHORT},y,2"]),
         "several columns that may be the label, 'kind', 'topics': choose with --config.task.la"),
        (csv("sentence_A,relatedness_score,entailment_judgment", [f"{LONG},2.5,x", f"{SHORT},3,y"]),
         "several columns that may be the label, 'relatedness_score', 'entailment_judgment'"),
        ("__label__1 so it is\n__label__2 not so\n", "has fastText's form: write a table"),
        (csv("id,label", ["1,x", "2,y"]), "no column of texts: 'id' has numbers, 'label' rep"),
        (csv("text,label", [f'{LONG} {n},"{n + 1},234"' for n in range(12)], 1),
         "has '1,234', and the comma may begin decimals or group thousands"),
        (csv("word,tag", ["Ann,B-PER", "ran,O"]), "no column that numbers sentences"),
        ('tokens,tags\n"[\'a\', \'b\']","[0, 3]"\n', "the tags in 'tags' are numbers: write their"),
    ],
)  # fmt: skip
def test_what_is_no_label_says_why(tmp_path, content, message):
    (path := tmp_path / "a.csv").write_text(content)
    with pytest.raises(UserError) as error:
        detect(str(path), {})
    assert message in str(error.value)


INFERENCE = [{"gold_label": g, "sentence1": LONG, "sentence2": g} for g in ("neutral", "-")]
ACCEPTED = [{"text": LONG, "spans": [], "answer": a} for a in ("accept", "ignore", "reject")]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.ann", "T1\tPER 0 3\tAnn\n", "has brat's form, whose texts are in another file"),
        ("a.csv", "sep=;\ntext;label\na;b\n", "the first line, 'sep=;', is for Excel"),
        ("a.conll", "#begin document (a); part 000\na 0 0 b\n", "has the form of CoNLL-2012"),
        ("a.csv", f",0,1\n0,{LONG},a\n1,{SHORT},b\n", "the header has numbers, ',0,1', as pandas"),
        ("a.json", '{"version": 1, "data": [{"text": "a"}]}', "examples in the field 'data'"),
        ("a.json", '{"text": ["a", "b"], "label": ["c", "d"]}', "has one object of columns"),
        ("a.jsonl", '{"header": {}}\n{"context": "c", "qas": []}\n', "first line is a header"),
        ("a.jsonl", "".join(json.dumps(x) + "\n" for x in ACCEPTED), "2 of 3 rows were not"),
        ("a.tsv", f"text\tlabel\nb'{LONG}'\tx\nb'{SHORT}'\ty\n", "are Python's bytes, such as b"),
        ("a.jsonl", "".join(json.dumps(x) + "\n" for x in INFERENCE), "1 rows have the label '-'"),
        ("a.jsonl", '{"query": "a", "pos": ["b"], "neg": ["c"]}\n', "'pos' has lists of texts"),
        ("a.jsonl", '["a", "b"]\n["c", "d"]\n', "JSON lists instead of objects with named fields"),
        ("a.jsonl", '{"question": "q", "choices": {"text": ["a", "b"]}, "answerKey": "A"}\n',
         "'choices' has objects: write the endings as a list of texts"),
        ("a.csv", csv("text,score", [f"{LONG},45.5%", f"{SHORT},9%"]), "has numbers with a sign"),
    ],
)  # fmt: skip
def test_forms_that_would_be_misread_are_refused_by_name(tmp_path, name, content, message):
    (path := tmp_path / name).write_text(content)
    with pytest.raises(UserError) as error:
        detect(str(path), {})
    assert message in str(error.value)


def test_columns_without_a_use_are_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(csv("text,label,author", [f"{LONG},x,Ann", f"{SHORT},y,Bob"]))
    assert detect(str(path), {}).what.endswith("in 'label'; not used: 'author'")


def test_a_spreadsheet_is_to_be_saved_as_csv():
    with pytest.raises(UserError, match="a.xlsx is a spreadsheet, not text: save it as CSV"):
        detect("a.xlsx", {})


def test_what_the_user_says_decides(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(csv("text,label,stars", [f"{LONG},x,1", f"{SHORT},y,5"]))
    detection = detect(str(path), {"task.label": "stars"}, "regression")
    assert found(detection, "task.text_a", "task.label") == ("regression", "text", "stars")
    assert detect(str(path), {"task.text_a": "label"}).fields["task.text_a"] == "label"


@pytest.mark.parametrize(
    "content, given, task, message",
    [
        ("text,label\n" + "".join(f"t {i},l{i}\n" for i in range(9)), {}, "",
         "the column 'label' has 9 different values in 9 rows, so these are no labels"),
        ("text,what\n" + "".join(f"t {i},w{i} x\n" for i in range(9)), {}, "",
         "no column of labels: 'text' has 9 different values, 'what' has 9 different values. Name"),
        ("text,label\na,x\nb,y\n", {}, "regression", "the column 'label' has 'x', which is"),
        ("text,label\na,x\nb,y\n", {}, "tagging", "is not for task='tagging': it has text 'text'"),
        ("text,label\na,x\nb,y\n", {}, "ner", "Unknown task 'ner'. Available: classification,"),
        ("text,label\na,x\nb,y\n", {"task.label": "stars"}, "", "has no column 'stars'"),
        ("text,label\n", {}, "", "has no examples"),
        ("a long story\nit ended well\n", {}, "", "has one column, 'a long story': labelled"),
    ],
)  # fmt: skip
def test_what_cannot_be_found_out_is_one_clear_line(tmp_path, content, given, task, message):
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(UserError) as error:
        detect(str(path), given, task)
    assert message in str(error.value) and "\n" not in str(error.value)
