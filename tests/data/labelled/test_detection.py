"""What a file of labelled examples is for, by names and by content."""

import json

import pytest

from bert_jax.data.labelled.detection import detect
from bert_jax.files.errors import UserError
from tests.data.labelled.public_forms import FORMS


def objects(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def csv(header, rows, times=8):
    return "\n".join([header, *rows * times]) + "\n"


def labels(*values):
    return "text\tlabel\n" + "".join(f"text {n} of words\t{x}\n" for n, x in enumerate(values * 4))


LONG, SHORT = "a long story about the sea", "it ended well in the harbour"
COLUMNS = ("task.text_a", "task.text_b", "task.label")
TAGGED = {"task.text_a": "Word", "task.label": "Tag", "task.id": "Sentence #"}
PLAIN = {"task.entities": False, "metrics": ("accuracy",)}
SQUAD = {"data": [{"title": "t", "paragraphs": [{"context": "c", "qas": []}]}]}
SPANS = {"text": "Ann saw Rome.", "relations": [], "entities": [
    {"id": 3, "label": "PER", "start_offset": 0, "end_offset": 3}]}  # fmt: skip
SCORED = csv("sentence1\tsentence2\tscore", ["a\tb\t0.5", "c\td\t1.5"])


@pytest.mark.parametrize(
    "file, content, expected",
    [(f, c, tuple(e)) for _, f, c, *e in FORMS],
    ids=[f[0] for f in FORMS],
)
def test_forms_of_public_tables(tmp_path, file, content, expected):
    (path := tmp_path / file).write_text(content)
    found = detect(str(path), {})
    assert (found.task, *map(found.fields.get, COLUMNS)) == expected


def embedding(text_a, text_b, label=None, **more):
    scored = {"task.label": label, "task.loss": "cosent", "metrics": ("spearman", "pearson")}
    fields = {"task.text_a": text_a, "task.text_b": text_b} | (scored if label else {})
    return "embedding", fields | {f"task.{name}": value for name, value in more.items()}


@pytest.mark.parametrize(
    "name, content, task, expected",
    [
        ("a.conll", "EU B-ORG\nwon O\n\nPeter B-PER\nspoke O\n", "", {}),
        ("a.txt", "EU\tB-ORG\nwon\tO\n\nPeter\tB-PER\nspoke\tO\n", "", {}),
        ("a.conll", "# id = 1\n# text = x\nAnn B-PER\nsaw O\n", "", {}),
        ("a.conll", "Ann B-PER\rsaw O\r\rBob B-PER\r", "", {}),
        ("a.conll", "the\tDET\ncat\tNOUN\n\nit\tPRON\nruns\tVERB\n", "", PLAIN),
        ("a.bio", "O\tare\nB-ACTOR\tann\nI-ACTOR\tsmith\n", "",
         {"task.text_a": "1", "task.label": "0"}),
        ("a.conllu", "# x = 1\n1-2\tdu" + "\t_" * 8 + "\n1\tde\tde\tADP" + "\t_" * 6 + "\n", "",
         {"task.text_a": "1", "task.label": "3", **PLAIN}),
        ("a.jsonl", objects({"tokens": ["EU", "won"], "ner_tags": ["B-ORG", "O"]}), "",
         {"task.text_a": "tokens", "task.label": "ner_tags"}),
        ("a.jsonl", objects({"tokens": list("abcd"), "tags": ["DET", "NOUN", "VERB", "ADP"]}), "",
         {"task.text_a": "tokens", "task.label": "tags", **PLAIN}),
        ("a.csv", "Sentence #,Word,POS,Tag\nSentence: 1,In,IN,O\n,Rome,NNP,B-geo\n", "", TAGGED),
        ("a.csv", "text,labels\nAnn saw Rome,B-PER O B-LOC\nso it is,O O O\n", "",
         {"task.text_a": "text", "task.label": "labels"}),
        ("a.csv", "tokens,ner\n\"['Ann', 'ran']\",\"['B-PER', 'O']\"\n", "",
         {"task.text_a": "tokens", "task.label": "ner"}),
        ("a.jsonl", objects(SPANS), "", {"task.text_a": "text", "task.label": "entities"}),
        ("a.jsonl", objects({"text": "Rome is old.", "label": [[0, 4, "LOC"]]}), "",
         {"task.text_a": "text", "task.label": "label"}),
        ("a.json", json.dumps(SQUAD, indent=1), "", ("span", {})),
        ("a.json", json.dumps([{"context": "c", "qas": [{"id": "1", "question": "q"}]}]), "",
         ("span", {})),
        ("a.csv", "question,context,answer,answer_start\nWho?,Ann ran.,Ann,0\n", "", ("span", {})),
        ("a.tsv", csv("anchor\tpositive", ["a b\tc d"]), "", embedding("anchor", "positive")),
        ("a.tsv", csv("question\tanswer", ["a b\tc d"]), "", embedding("question", "answer")),
        ("a.tsv", csv("query\tdocument\tnegative", ["a\tb\tc"]), "",
         embedding("query", "document", negative="negative")),
        ("a.tsv", csv("anchor\tpositive\tnegative\tlabel", ["a\tb\tc\t1"]), "",
         embedding("anchor", "positive", negative="negative")),
        ("a.tsv", csv("anchor\tpositive\tlabel", ["a\tb\t1", "c\td\t1"]), "",
         embedding("anchor", "positive")),
        ("a.tsv", csv("id\tAnchor\tPositive\tnegative", ["1\ta\tb\tc"]), "",
         embedding("Anchor", "Positive", id="id", negative="negative")),
        ("a.tsv", csv("query\tpositive\tscore", ["a\tb\t0.5", "c\td\t1"]), "",
         embedding("query", "positive", "score")),
        ("a.tsv", SCORED, "embedding", embedding("sentence1", "sentence2", "score")),
        ("a.tsv", csv("sentence1\tsentence2\tlabel", ["a\tb\tneutral"]), "embedding",
         embedding("sentence1", "sentence2")),
    ],
)  # fmt: skip
def test_other_tasks_are_known_by_the_form_of_their_files(tmp_path, name, content, task, expected):
    (path := tmp_path / name).write_bytes(content.encode())
    found = detect(str(path), {}, task)
    expected = expected if isinstance(expected, tuple) else ("tagging", expected)
    assert (found.task, found.fields) == expected


@pytest.mark.parametrize(
    "name, content, given, task, fields",
    [
        # no usual names: the longest texts, and what repeats; a second text is that of a pair
        ("a.csv", csv("nr,what,kind", [f"{n},{LONG} {n},{'xy'[n % 2]}" for n in range(8)], 1),
         {}, "classification", {"task.text_a": "what", "task.text_b": "", "task.label": "kind"}),
        ("a.tsv", "question\tparagraph\tlabel\n" + "".join(
            f"What of {i}?\t{LONG} {i}\t{'yn'[i % 2]}\n" for i in range(8)),
         {}, "classification", {"task.text_b": "paragraph"}),
        ("a.tsv", labels("good", "bad"), {}, "classification",
         {"metrics": ("accuracy", "macro_f1"), "task.problem_type": "single"}),
        ("a.tsv", labels(*["good"] * 5, "bad"), {}, "classification",
         {"metrics": ("macro_f1", "accuracy")}),
        ("a.tsv", labels(*"12345"), {}, "classification", {}),
        ("a.tsv", labels("0.5", "1.5", "3"), {}, "regression",
         {"metrics": ("pearson", "spearman"), "task.problem_type": "regression"}),
        ("a.tsv", labels(*range(0, 120, 3)), {}, "regression", {}),
        ("a.tsv", labels("sea,love", "love", "sea,war", "war", "war,love"), {}, "multi_label",
         {"task.label_separator": ",", "task.problem_type": "multi"}),
        ("a.csv", csv("id,comment_text,toxic,rude", [f"1,{LONG},0,1", f"2,{SHORT},0,0"]), {},
         "multi_label", {"task.label": "toxic,rude", "task.id": "id"}),
        ("a.tsv", SCORED, {}, "regression", {}),
        # what the user says decides
        ("a.tsv", csv("anchor\tpositive", ["a b\tx", "c d\ty"]), {"task.text_a": "anchor"},
         "classification", {}),
        ("a.csv", csv("text,label,stars", [f"{LONG},x,1", f"{SHORT},y,5"]),
         {"task.label": "stars", "task.problem_type": "regression"}, "regression",
         {"task.text_a": "text", "task.label": "stars"}),
        ("a.csv", csv("text,label,stars", [f"{LONG},x,1", f"{SHORT},y,5"]),
         {"task.text_a": "label"}, "classification", {"task.text_a": "label"}),
    ],
)  # fmt: skip
def test_tables_by_their_content(tmp_path, name, content, given, task, fields):
    (path := tmp_path / name).write_text(content)
    found = detect(str(path), given)
    assert found.task == task and fields.items() <= found.fields.items()


def test_columns_without_a_use_are_named(tmp_path):
    (path := tmp_path / "a.csv").write_text(
        csv("text,label,author", [f"{LONG},x,A", f"{SHORT},y,B"])
    )
    assert detect(str(path), {}).what.endswith("in 'label'; not used: 'author'")
    found = detect(str(path), {"task.id": "author"})
    assert found.what.endswith("in 'label'")
    path.write_text(csv("anchor,positive,author", [f"{LONG},{SHORT},A"]))
    assert detect(str(path), {}).what.endswith("(anchor, positive); not used: 'author'")


INFERENCE = [{"gold_label": g, "sentence1": LONG, "sentence2": g} for g in ("neutral", "-")]
ACCEPTED = [{"text": LONG, "spans": [], "answer": a} for a in ("accept", "ignore", "reject")]
SMALL = "text,label\na,x\nb,y\n"


@pytest.mark.parametrize(
    "name, content, given, task, message",
    [
        ("a.csv", csv("anchor,positive,negative_1,negative_2", ["a,b,c,d"]), {}, "",
         "has negative_1, negative_2: write one row for each negative"),
        # no label, and why
        ("a.csv", csv("text,label", [f"{LONG},pos"]), {}, "", "all 8 labels are 'pos'"),
        ("a.csv", csv("text,price", [f"{LONG},2.5", f"{SHORT},2.5"]), {}, "", "no column of lab"),
        ("a.csv", csv("text,label", [f"{LONG},2.5", f"{SHORT},2.5"]), {}, "", "16 numbers are 2.5"),
        ("a.csv", csv("text,label", [f"{LONG},-", f"{SHORT},?"]), {}, "regression", "no numbers"),
        ("a.csv", csv("text,kind,topics", [f"{LONG},x,1", f"{SHORT},y,2"]), {}, "",
         "several columns that may be the label, 'kind', 'topics': choose with --config.task.la"),
        ("a.csv", csv("sentence_A,relatedness_score,entailment_judgment",
                      [f"{LONG},2.5,x", f"{SHORT},3,y"]), {}, "",
         "label, 'relatedness_score', 'entailment_judgment'"),
        ("a.csv", csv("id,label", ["1,x", "2,y"]), {}, "",
         "no column of texts: 'id' has numbers, 'label' rep"),
        ("a.csv", csv("text,label", [f'{LONG} {n},"{n + 1},234"' for n in range(12)], 1), {}, "",
         "has '1,234', and the comma may begin decimals or group thousands"),
        ("a.csv", csv("word,tag", ["Ann,B-PER", "ran,O"]), {}, "", "no column that numbers sent"),
        ("a.csv", 'tokens,tags\n"[\'a\', \'b\']","[0, 3]"\n', {}, "", "'tags' are numbers: write"),
        ("a.csv", "text,label\n" + "".join(f"t {i},l{i}\n" for i in range(9)), {}, "",
         "the column 'label' has 9 different values in 9 rows"),
        ("a.csv", "text,what\n" + "".join(f"t {i},w{i} x\n" for i in range(9)), {}, "",
         "labels: 'text' has 9 different values, 'what' has 9 different values. Name"),
        ("a.csv", csv("text,score", [f"{LONG},45.5%", f"{SHORT},9%"]), {}, "", "with a sign"),
        ("a.csv", SMALL, {}, "regression", "the column 'label' has 'x', which is"),
        ("a.csv", SMALL, {}, "tagging", "is not for task='tagging': it has text 'text'"),
        ("a.csv", SMALL, {}, "embedding", "has no pairs of texts among 'text', 'label': name"),
        ("a.csv", SMALL, {}, "ner", "Unknown task 'ner'. Available: classification,"),
        ("a.csv", SMALL, {"task.label": "stars"}, "", "has no column 'stars'"),
        ("a.csv", "text,label\n", {}, "", "has no examples"),
        ("a.jsonl", "{}\n", {}, "", "has no examples"),
        ("a.csv", "a long story\nit ended well\n", {}, "", "has one column, 'a long story'"),
        # pairs that do not belong together
        ("a.csv", csv("question1,question2,is_duplicate", [f"{LONG},a,1", f"{SHORT},b,0"]), {},
         "embedding", "has labels or scores in the column 'is_duplicate', which task=embedding"),
        ("a.csv", csv("query,passage,label", [f"{LONG},a,1", f"{SHORT},b,0"]), {}, "splade",
         "labels or scores in the column 'label', which task=splade cannot read: keep the pairs"),
        ("a.csv", csv("text_a,text_b,label", [f"{LONG},a,yes", f"{SHORT},b,no"]), {},
         "cross_encoder", "or write numbers into it and name it with --config.task.label"),
        # forms that would be misread
        ("a.xlsx", "", {}, "", "a.xlsx is a spreadsheet, not text: save it as CSV"),
        ("a.csv", "__label__1 so it is\n__label__2 not so\n", {}, "", "has fastText's form"),
        ("a.ann", "T1\tPER 0 3\tAnn\n", {}, "", "has brat's form"),
        ("a.csv", "sep=;\ntext;label\na;b\n", {}, "", "'sep=;', is for Excel"),
        ("a.conll", "#begin document (a); part 000\na 0 0 b\n", {}, "", "form of CoNLL-2012"),
        ("a.csv", f",0,1\n0,{LONG},a\n1,{SHORT},b\n", {}, "", "the header has numbers, ',0,1'"),
        ("a.json", '{"version": 1, "data": [{"text": "a"}]}', {}, "", "in the field 'data'"),
        ("a.json", '{"text": ["a", "b"], "label": ["c", "d"]}', {}, "", "one object of columns"),
        ("a.jsonl", '{"header": {}}\n{"context": "c", "qas": []}\n', {}, "", "line is a header"),
        ("a.jsonl", objects(*ACCEPTED), {}, "", "2 of 3 rows were not"),
        ("a.tsv", f"text\tlabel\nb'{LONG}'\tx\nb'{SHORT}'\ty\n", {}, "", "are Python's bytes"),
        ("a.jsonl", objects(*INFERENCE), {}, "", "1 rows have the label '-'"),
        ("a.jsonl", '{"query": "a", "pos": ["b"], "neg": ["c"]}\n', {}, "", "'pos' has lists of"),
        ("a.jsonl", '["a", "b"]\n["c", "d"]\n', {}, "", "JSON lists instead of objects"),
        ("a.json", "[" * 100_000, {}, "", "JSON lists instead of objects"),
        ("a.jsonl", '{"question": "q", "choices": {"text": ["a", "b"]}, "answerKey": "A"}\n',
         {}, "", "'choices' has objects"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_clear_line(tmp_path, name, content, given, task, message):
    (path := tmp_path / name).write_text(content)
    with pytest.raises(UserError) as error:
        detect(str(path), given, task)
    assert message in str(error.value) and "\n" not in str(error.value)
