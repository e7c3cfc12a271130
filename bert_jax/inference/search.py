"""Search by the vectors of a trained model: its scores, reranking, hard negatives."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.data.in_memory import read_examples
from bert_jax.data.labelled.detection import detect
from bert_jax.data.retrieval_set import RetrievalSet, read_retrieval_set
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import MULTI, SPLADE, read_sentence_vectors
from bert_jax.inference.model import Model, load
from bert_jax.scores import bag_of_words, retrieval
from bert_jax.tasks.embedding import Embedding

# Names of the prompts for queries and for documents, the first one that a model has.
_PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}
# How dense vectors are compared -> function of vectors of queries and of documents.
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

    Texts that are too long are cut off. Of equal scores, those of relevant documents come last.

    Args:
      model: a model that gives vectors, dense, sparse or one of each token, or its folder.
      data: a folder in the form of BEIR (`data.retrieval_set`), or its content.
      reranker: a model of pairs (`Model.rank`), or its folder; it orders the best documents again.
      depth: number of documents of a query that it orders.

    Returns:
      The scores of `retrieval.RANKING_METRICS` of "tf_idf", which needs no model, "model", and
      with a reranker "reranked".

    Raises:
      UserError: the folder has another form, or the model gives no vectors.
    """
    if not isinstance(data, RetrievalSet):
        data = read_retrieval_set(os.fspath(data))
    queries, documents = [*data.queries.values()], [*data.documents.values()]
    found = similarities(_opened(model), queries, documents)
    values = {
        "tf_idf": ranking_scores(data, tf_idf(queries, documents)),
        "model": ranking_scores(data, found),
    }
    if reranker is not None:
        found = rerank(_opened(reranker), found, queries, documents, depth)
        values["reranked"] = ranking_scores(data, found)
    return values


def _opened(model: Model | str | os.PathLike[str]) -> Model:
    return load(model) if isinstance(model, str | os.PathLike) else model


def similarities(model: Model, queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """Returns float[queries, documents], how well documents match.

    Dense vectors are compared by their cosine, or as config_sentence_transformers.json says, sparse
    ones by their product, those of tokens by MaxSim.
    """
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
    sides = [
        encode(list(texts), long="truncate", prompt=_prompt(vectors.prompts, side))
        for texts, side in ((queries, "query"), (documents, "document"))
    ]
    return compare(*sides)


def _prompt(prompts: Mapping[str, str], side: str) -> str:
    return next((name for name in _PROMPTS[side] if prompts.get(name)), "")


def tf_idf(queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """Returns the cosines of TF-IDF vectors, whose terms and weights are those of the documents."""
    found = bag_of_words.tf_idf([[text] for text in documents], [[text] for text in queries])
    return (found[1] @ found[0].T).toarray()


def rerank(
    model: Model, scores: np.ndarray, queries: Sequence[str], documents: Sequence[str], depth: int
) -> np.ndarray:
    """Returns scores whose order is that of a cross-encoder among the best documents.

    The other documents follow in their order.

    Args:
      model: a model of pairs, see `Model.rank`.
      scores: float[queries, documents].
      queries, documents: the texts.
      depth: number of documents of each query that are scored again.
    """
    best = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    pairs = [
        (queries[row], documents[place]) for row, places in enumerate(best) for place in places
    ]
    found = [model.task.relevance(prediction) for prediction in model.predict(pairs)]
    # Below 0, which the scores of other documents become, in float64, which keeps their order.
    scores = scores.astype(np.float64)
    reranked = scores - scores.max(axis=1, keepdims=True) - 1.0
    lowest = min(0.0, *found) if found else 0.0
    np.put_along_axis(reranked, best, np.reshape(found, best.shape) - lowest, axis=1)
    return reranked


def ranking_scores(data: RetrievalSet, scores: np.ndarray) -> dict[str, float]:
    """Returns `retrieval.ranking_scores` of float[queries, documents]."""
    places = {name: place for place, name in enumerate(data.documents)}
    found, ideal = [], []
    for row, query in zip(scores, data.queries, strict=True):
        relevance = np.zeros(len(places))
        for name, value in data.relevant[query].items():
            relevance[places[name]] = value
        found.append(relevance[retrieval.order(row, relevance)])
        ideal.append(np.sort(relevance[relevance > 0])[::-1])
    return retrieval.ranking_scores(found, ideal)


def mine_negatives(
    model: Model | str | os.PathLike[str],
    pairs: Any,
    negatives: int = 1,
    skip: int = 0,
    at_most: float = 0.95,
) -> list[dict[str, str]]:
    """Returns triplets, whose third text is one that the model takes for the second one.

    They are the second texts of other pairs that match the first text best.

    Args:
      model: a model that gives vectors, dense, sparse or one of each token, or its folder.
      pairs: pairs that belong together: a file, a table or rows, with the columns `anchor` and
        `positive` or others with texts.
      negatives: number of triplets of a pair; fewer, if there are not as many.
      skip: number of the best candidates that are left out, since they may belong to the text.
      at_most: a negative's similarity is at most this part of that of the pair (Moreira et al.
        2024, arXiv 2407.15831, section 4); 0: any.

    Returns:
      Rows of `anchor`, `positive` and `negative`, in the order of the pairs.

    Raises:
      UserError: there are no pairs, or an argument is out of its range.
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
    scores = dict(zip(own, similarities(_opened(model), list(own), texts), strict=True))
    best = {
        anchor: [
            place
            for place in np.argsort(-scores[anchor], kind="stable").tolist()
            if texts[place] not in own[anchor]
        ][skip:]
        for anchor in own
    }
    triplets = []
    for anchor, positive in rows:
        row = scores[anchor]
        limit = at_most * row[places[positive]] if at_most else np.inf
        chosen = [texts[place] for place in best[anchor] if row[place] <= limit][:negatives]
        triplets += [{"anchor": anchor, "positive": positive, "negative": x} for x in chosen]
    return triplets


def _read_pairs(pairs: Any) -> list[tuple[str, str]]:
    """Returns the distinct pairs of a file or of data in memory."""

    def read(path: str) -> list[Any]:
        fields = detect(path, {}, "embedding").fields
        columns = {name: fields[f"task.{name}"] for name in ("text_a", "text_b")}
        return list(Embedding(**columns).read(path, Counter(), labelled=True))

    is_path = isinstance(pairs, str | os.PathLike)
    examples = read(os.fspath(pairs)) if is_path else read_examples(pairs, "pairs", read)
    return list(dict.fromkeys((example.text_a, example.text_b) for example in examples))
