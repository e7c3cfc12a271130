"""Models without an encoder: linear ones on TF-IDF, and the most frequent tag of a word.

A fine-tuned encoder is compared with them. They are those of scikit-learn with its defaults:
TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression, OneVsRestClassifier of it, Ridge. All are
deterministic, and take seconds.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

# scipy is imported in functions, since its import adds a filter of warnings.
if TYPE_CHECKING:
    from scipy import sparse

# Maximum number of training examples; of more, every second, third, ... one is used.
MAX_EXAMPLES = 20_000
# Maximum number of terms, the most frequent ones, and of weights, which limits terms x classes.
_MAX_TERMS, _MAX_WEIGHTS = 50_000, 2_000_000
# Steps of L-BFGS: as many as take this number of products, which are seconds, within these bounds.
_MIN_STEPS, _MAX_STEPS, _MAX_PRODUCTS = 10, 100, 400_000_000
_WORD = re.compile(r"\w\w+")
_logger = logging.getLogger(__name__)
# Scripts without spaces between words, whose characters take the place of words.
_NO_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def tf_idf(
    train: Sequence[Sequence[str]], test: Sequence[Sequence[str]]
) -> "tuple[sparse.csr_matrix, sparse.csr_matrix]":
    """Returns the TF-IDF of words and pairs of words, rows of length 1.

    Terms of a second text count apart from those of the first, and terms of both once more.

    Args:
      train: texts of each example, one or two; the terms and their weights come from them.
      test: texts of other examples.

    Returns:
      float64[train, terms], float64[test, terms].
    """
    counts = [Counter(_terms(texts)) for texts in train]
    frequency = Counter(term for row in counts for term in row)
    kept = sorted(frequency, key=lambda term: (-frequency[term], term))[:_MAX_TERMS]
    numbers = {term: number for number, term in enumerate(kept)}
    weights = np.array([1 + np.log((1 + len(train)) / (1 + frequency[term])) for term in kept])
    others = (Counter(_terms(texts)) for texts in test)
    return _matrix(counts, numbers, weights), _matrix(others, numbers, weights)


def _terms(texts: Sequence[str]) -> Iterator[str]:
    found = [list(_terms_of_text(text)) for text in texts]
    for number, terms in enumerate(found):
        yield from (f"{number} {term}" for term in terms)
    if len(found) > 1:
        yield from (f"both {term}" for term in {*found[0]} & {*found[1]})


def _terms_of_text(text: str) -> Iterator[str]:
    text = _NO_SPACES.sub(lambda character: f" {character[0] * 2} ", text.lower())
    words = _WORD.findall(text)
    yield from words
    yield from map(" ".join, zip(words, words[1:], strict=False))


def _matrix(
    counts: Iterable[Counter[str]], numbers: dict[str, int], weights: np.ndarray
) -> "sparse.csr_matrix":
    from scipy import sparse

    values, columns, ends = [], [], [0]
    for row in counts:
        known = {numbers[term]: count for term, count in row.items() if term in numbers}
        array = np.array(list(known.values()), float) * weights[list(known)]
        values.extend(array / (np.linalg.norm(array) or 1))
        columns.extend(known)
        ends.append(len(columns))
    return sparse.csr_matrix((values, columns, ends), shape=(len(ends) - 1, len(numbers)))


def classify(
    x: Any, gold: np.ndarray, test: Any, is_exclusive: bool, max_steps: int = 0
) -> np.ndarray:
    """Returns the logits of test examples by logistic regression, float64[test, classes].

    Args:
      x: float64[examples, terms], sparse or dense.
      gold: bool[examples, classes], the classes of each example.
      test: float64[test, terms].
      is_exclusive: whether an example has one class; otherwise each class is decided separately.
      max_steps: maximum number of steps of L-BFGS; 0: as many as take seconds.
    """
    from scipy import optimize
    from scipy.special import expit, logsumexp

    classes = gold.shape[1]
    terms = max(1, _MAX_WEIGHTS // classes)  # the most frequent ones are first
    x, test = x[:, :terms], test[:, :terms]
    shape = (x.shape[1] + 1, classes)  # the last row is the intercept, without penalty
    # Two exclusive classes share one vector, as w / 2 and -w / 2.
    penalty = 2.0 if is_exclusive and classes == 2 else 1.0

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(shape)
        logits = x @ weights[:-1] + weights[-1]
        if is_exclusive:
            log_z: Any = logsumexp(logits, axis=1, keepdims=True)
            value = log_z.sum() - logits[gold].sum()
            errors = np.exp(logits - log_z) - gold
        else:
            value = np.logaddexp(0, logits).sum() - logits[gold].sum()
            errors = expit(logits) - gold
        gradient = np.vstack([x.T @ errors + penalty * weights[:-1], errors.sum(0)])
        return value + penalty / 2 * (weights[:-1] ** 2).sum(), gradient.ravel()

    values = getattr(x, "nnz", x.size)
    steps = np.clip(_MAX_PRODUCTS // max(1, values * classes), _MIN_STEPS, _MAX_STEPS)
    start, options = np.zeros(shape).ravel(), {"maxiter": max_steps or int(steps)}
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    if max_steps and not found.success:
        _logger.warning("A classifier did not converge in %d steps.", max_steps)
    weights = found.x.reshape(shape)
    return test @ weights[:-1] + weights[-1]


def regress(x: Any, values: np.ndarray, test: Any) -> np.ndarray:
    """Returns the values of test examples by ridge regression, float64[test]."""
    from scipy import sparse

    mean, center = values.mean(), np.asarray(x.mean(0)).ravel()
    centered = sparse.linalg.LinearOperator(
        x.shape,
        matvec=lambda w: x @ w - center @ w,
        rmatvec=lambda r: x.T @ r - center * r.sum(),
    )
    weights = sparse.linalg.lsqr(centered, values - mean, damp=1.0)[0]
    return test @ weights - center @ weights + mean


def tag_words(
    train: Iterable[tuple[Sequence[str], Sequence[str]]], test: Iterable[Sequence[str]]
) -> list[list[str]]:
    """Returns the most frequent tag of each word; for a new word, that of all words.

    Args:
      train: words and tags of each sentence.
      test: words of other sentences.
    """
    counts: dict[str, Counter[str]] = {}
    for words, tags in train:
        for word, tag in zip(words, tags, strict=True):
            counts.setdefault(word, Counter())[tag] += 1
    total = sum(counts.values(), Counter[str]())
    usual = _most_frequent(total)
    by_word = {word: _most_frequent(found) for word, found in counts.items()}
    return [[by_word.get(word, usual) for word in words] for words in test]


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))
