"""Search with the vectors of a trained model: evaluation, reranking, hard negatives."""

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.data.in_memory import read_examples
from bert_jax.data.labelled.detection import detect
from bert_jax.data.retrieval_set import RetrievalSet, read_retrieval_set
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import MULTI, SPLADE, read_sentence_vectors
from bert_jax.inference.model import Model, load
from bert_jax.scores import bag_of_words, retrieval
from bert_jax.tasks.cross_encoder import CrossEncoder
from bert_jax.tasks.embedding import Embedding

# Names of prompts for queries and for documents; the first one that a model has is used.
_PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}
# Number of queries that are compared with all documents at a time.
_QUERIES = 256
# Name of a similarity of dense vectors -> function of the vectors of queries and documents.
_DENSE = {
    "": retrieval.cosines,
    "dot": lambda queries, documents: queries @ documents.T,
}


def evaluate_retrieval(
    model: Model | str | os.PathLike[str],
    data: str | os.PathLike[str] | RetrievalSet,
    reranker: Model | str | os.PathLike[str] | None = None,
    depth: int = 100,
) -> dict[str, dict[str, float]]:
    """Returns how well the vectors of a model find the relevant documents of queries.

    Texts that are too long are truncated. Among equal scores, relevant documents come last.

    Args:
      model: a model that gives vectors (dense, sparse or one for each token), or its folder.
      data: a folder in BEIR's format (`data.retrieval_set`), or its contents.
      reranker: a cross-encoder (`Model.rank`), or its folder, which reranks the best documents.
      depth: number of documents to rerank for each query.

    Returns:
      The values of `retrieval.RANKING_METRICS` for "tf_idf", which needs no model, "model", and
      with a reranker "reranked".

    Raises:
      UserError: the folder has another form, or the model gives no vectors.
    """
    if not isinstance(depth, int) or depth < 1:
        raise UserError(f"depth={depth} must be a number from 1.")
    if reranker is not None:
        reranker = _opened(reranker)
        reranker.check_ranks()
    if not isinstance(data, RetrievalSet):
        data = read_retrieval_set(os.fspath(data))
    queries, documents = [*data.queries.values()], [*data.documents.values()]
    found = best_documents(data, similarities(_opened(model), queries, documents), depth)
    values = {
        "tf_idf": ranking_scores(data, best_documents(data, tf_idf(queries, documents))),
        "model": ranking_scores(data, found),
    }
    if reranker is not None:
        values["reranked"] = ranking_scores(data, rerank(reranker, data, found, depth))
    return values


def _opened(model: Model | str | os.PathLike[str]) -> Model:
    return load(model) if isinstance(model, str | os.PathLike) else model


def similarities(
    model: Model, queries: Sequence[str], documents: Sequence[str]
) -> Iterator[np.ndarray]:
    """Yields float[documents] for each query, how well documents match.

    Dense vectors are compared by their cosine, or as config_sentence_transformers.json says; sparse
    ones by their dot product; token vectors by MaxSim.
    """
    if isinstance(model.task, CrossEncoder):
        raise UserError(
            f"{model.folder} scores pairs of texts, and searches need vectors: give it as the"
            " reranker."
        )
    vectors = read_sentence_vectors(model.folder)
    encode, compare = {
        SPLADE: (model.encode_sparse, retrieval.sparse_products),
        MULTI: (model.encode_multi, retrieval.max_similarities),
    }.get(vectors.pooling, (model.encode, _DENSE.get(vectors.similarity)))
    if compare is None:
        raise UserError(
            f"{model.folder} compares vectors by {vectors.similarity!r}: only cosine and dot are"
            " supported."
        )
    asked, found = (
        encode(list(texts), long="truncate", prompt=_prompt(vectors.prompts, side))
        for texts, side in ((queries, "query"), (documents, "document"))
    )
    return _rows(compare, asked, found, len(queries))


def _rows(
    compare: Callable[[Any, Any], Any], queries: Any, documents: Any, count: int
) -> Iterator[np.ndarray]:
    for start in range(0, count, _QUERIES):
        yield from compare(queries[start : start + _QUERIES], documents)


def _prompt(prompts: Mapping[str, str], side: str) -> str:
    return next((name for name in _PROMPTS[side] if prompts.get(name)), "")


def tf_idf(queries: Sequence[str], documents: Sequence[str]) -> Iterator[np.ndarray]:
    """Yields the cosines of TF-IDF vectors, whose terms and weights come from the documents."""
    found = bag_of_words.tf_idf([[text] for text in documents], [[text] for text in queries])
    return _rows(retrieval.sparse_products, found[1], found[0], len(queries))


def best_documents(
    data: RetrievalSet, scores: Iterable[np.ndarray], depth: int = 0
) -> list[np.ndarray]:
    """Returns the places of the best documents of each query, the best first.

    Among equal scores, relevant documents come last. A document that is the query itself is left
    out, as in BEIR: one with its id, whose text ends with the query's, if it is not relevant.

    Args:
      data: queries, documents and their relevance.
      scores: float[documents] for each query.
      depth: number of documents; at least those that `RANKING_METRICS` read.
    """
    depth = max(depth, retrieval.READ)
    numbers, best = {name: number for number, name in enumerate(data.documents)}, []
    for query, row, relevance in zip(data.queries, scores, _relevance(data), strict=True):
        places = retrieval.order(row, relevance)
        text, is_relevant = data.documents.get(query), query in data.relevant[query]
        if text is not None and text.endswith(data.queries[query]) and not is_relevant:
            places = places[places != numbers[query]]
        best.append(places[:depth])
    return best


def _relevance(data: RetrievalSet) -> Iterator[np.ndarray]:
    """Yields float[documents] for each query."""
    places = {name: place for place, name in enumerate(data.documents)}
    for query in data.queries:
        relevance = np.zeros(len(places))
        for name, value in data.relevant[query].items():
            relevance[places[name]] = value
        yield relevance


def rerank(
    model: Model, data: RetrievalSet, best: Sequence[np.ndarray], depth: int
) -> list[np.ndarray]:
    """Reranks the best documents with a cross-encoder; the others follow in their order.

    Args:
      model: a cross-encoder, see `Model.rank`.
      data: queries, documents and their relevance.
      best: the places of the best documents of each query.
      depth: number of documents to rerank for each query.
    """
    documents = [*data.documents.values()]
    queries = zip(data.queries.values(), best, strict=True)
    pairs = [(query, documents[place]) for query, places in queries for place in places[:depth]]
    scores = iter([model.task.relevance(prediction) for prediction in model.predict(pairs)])
    found = []
    for places, relevance in zip(best, _relevance(data), strict=True):
        first, rest = places[:depth], places[depth:]
        own = np.array([*itertools.islice(scores, len(first))])
        found.append(np.concatenate([first[retrieval.order(own, relevance[first])], rest]))
    return found


def ranking_scores(data: RetrievalSet, best: Sequence[np.ndarray]) -> dict[str, float]:
    """Returns `retrieval.ranking_scores` of the best documents of each query."""
    relevance = zip(best, _relevance(data), strict=True)
    pairs = [(row[places], np.sort(row[row > 0])[::-1]) for places, row in relevance]
    return retrieval.ranking_scores(*zip(*pairs, strict=True))


def mine_negatives(
    model: Model | str | os.PathLike[str],
    pairs: Any,
    negatives: int = 1,
    skip: int = 0,
    at_most: float = 0.95,
) -> list[dict[str, str]]:
    """Returns triplets whose third text is a hard negative: one that the model takes for positive.

    Negatives are the second texts of other pairs that match the first text best.

    Args:
      model: a model that gives vectors (dense, sparse or one for each token), or its folder.
      pairs: pairs that belong together: a file, a table or rows, with the columns `anchor` and
        `positive` or others with texts.
      negatives: number of triplets for each pair; fewer if there are not enough candidates.
      skip: number of best candidates that are left out, since they may be positives.
      at_most: a negative's similarity is at most this fraction of the pair's (Moreira et al. 2024,
        arXiv 2407.15831, section 4); 0: any.

    Returns:
      Rows of `anchor`, `positive` and `negative`, in the order of the pairs.

    Raises:
      UserError: there are no pairs, or an argument is out of range.
    """
    if not 0 <= at_most <= 1:
        raise UserError(f"at_most={at_most} must be from 0 to 1.")
    if negatives < 1 or skip < 0:
        raise UserError(f"negatives={negatives} must be at least 1, and skip={skip} at least 0.")
    rows = _read_pairs(pairs)
    own: dict[str, set[str]] = {}
    for anchor, positive in rows:
        own.setdefault(anchor, {anchor}).add(positive)
    texts = list(dict.fromkeys(positive for _, positive in rows))
    places = {text: place for place, text in enumerate(texts)}
    found: dict[tuple[str, str], list[str]] = {}  # keyed by text and positive
    for anchor, row in zip(own, similarities(_opened(model), list(own), texts), strict=True):
        order = np.argsort(-row, kind="stable").tolist()
        others = [place for place in order if texts[place] not in own[anchor]][skip:]
        for positive in own[anchor] & places.keys():
            limit = at_most * row[places[positive]] if at_most else np.inf
            near = (texts[place] for place in others if row[place] <= limit)
            found[anchor, positive] = [*itertools.islice(near, negatives)]
    triplets = [
        {"anchor": anchor, "positive": positive, "negative": negative}
        for anchor, positive in rows
        for negative in found[anchor, positive]
    ]
    if not triplets:
        raise UserError(
            f"No text of another pair can be a negative with skip={skip} and at_most={at_most}:"
            f" {'lower skip, ' if skip else ''}raise at_most, or give more pairs; with"
            " a model whose vectors are all alike, no text is far enough."
        )
    return triplets


def _read_pairs(pairs: Any) -> list[tuple[str, str]]:
    """Returns the distinct pairs of a file or of data in memory."""

    def read(path: str) -> list[Any]:
        fields = detect(path, {}, "embedding").fields
        if label := fields.get("task.label", ""):
            raise UserError(
                f"{path} has scores or labels in the column {label!r}: only pairs that belong"
                " together can be mined; give these, without that column."
            )
        columns = {name: fields[f"task.{name}"] for name in ("text_a", "text_b")}
        return list(Embedding(**columns).read(path, Counter(), labelled=True))

    is_path = isinstance(pairs, str | os.PathLike)
    examples = read(os.fspath(pairs)) if is_path else read_examples(pairs, "pairs", read)
    return list(dict.fromkeys((example.text_a, example.text_b) for example in examples))
