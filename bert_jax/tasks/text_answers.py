"""Predictions on texts: candidates for masks, and probabilities of whole texts."""

import dataclasses

import numpy as np

from bert_jax.data.batch import Batch
from bert_jax.data.corpus.streams import StreamFormat
from bert_jax.data.labelled.texts import EncodedTexts, TextRow
from bert_jax.scores.language_model import perplexity
from bert_jax.tasks.task import Prediction
from bert_jax.text.tokenization import Tokenizer


class MaskAnswers:
    """The candidates for the masks of all texts."""

    def __init__(self, texts: EncodedTexts, judges_pairs: bool):
        self._texts, self._judges_pairs = texts, judges_pairs
        self._predictions: list[Prediction] = [{}] * len(texts.rows)

    def add(self, row_numbers: np.ndarray, length: int, answers: dict[str, np.ndarray]) -> None:
        for place, number in enumerate(row_numbers.tolist()):
            if number >= 0:
                of_row = {name: array[place] for name, array in answers.items()}
                self._predictions[number] = self._describe(self._texts.rows[number], of_row)

    def predictions(self) -> list[Prediction]:
        """`next_sentence` and `masks` of each text."""
        return self._predictions

    def _describe(self, row: TextRow, answers: dict[str, np.ndarray]) -> Prediction:
        pieces = self._texts.tokenizer.pieces
        masks = [
            {
                "position": position,
                "candidates": [
                    {"token": pieces[token], "probability": float(probability)}
                    for token, probability in zip(tokens, probabilities, strict=True)
                ],
            }
            for position, tokens, probabilities in zip(
                row.masked, answers["tokens"], answers["probabilities"], strict=False
            )
        ]
        pair = None
        if row.is_pair and self._judges_pairs and "next_sentence" in answers:
            is_next, random_next = map(float, answers["next_sentence"])
            pair = {"is_next": is_next, "random_next": random_next}
        return {"next_sentence": pair, "masks": masks}


@dataclasses.dataclass(frozen=True)
class WholeTexts:
    """Texts as ids, without markers, and the tokenizer that made them."""

    ids: list[list[int]]
    tokenizer: Tokenizer

    @property
    def lengths(self) -> np.ndarray:
        """int64[texts] in slots of a stream, one more than the text has tokens."""
        return np.array([len(ids) + 1 for ids in self.ids], np.int64)

    def take(self, row_numbers: np.ndarray, length: int) -> Batch:
        """Returns texts as rows of streams of `length` slots; -1: padding."""
        first, last = self.tokenizer.cls_id, self.tokenizer.sep_id
        size, others = len(self.tokenizer.pieces), (self.tokenizer.pad_id, self.tokenizer.unk_id)
        form = StreamFormat(length, size, others[0], first, last, others[1], num_words=size)
        rows = []
        for number in row_numbers.tolist():
            ids = self.ids[number]
            both = [first, *ids, first], [last, *reversed(ids), last]
            rows.append(form.padding if number < 0 else tuple(map(np.array, both)))
        return form.make_batch(rows)


class TextAnswers:
    """The probabilities of all texts, by models that read them from both ends."""

    def __init__(self, texts: WholeTexts):
        self._texts = texts
        self._predictions: list[Prediction] = [{}] * len(texts.ids)

    def add(self, row_numbers: np.ndarray, length: int, answers: dict[str, np.ndarray]) -> None:
        for place, number in enumerate(row_numbers.tolist()):
            if number >= 0:
                forward, backward = (float(answers[x][place]) for x in ("forward", "backward"))
                tokens = len(self._texts.ids[number])
                self._predictions[number] = {
                    "tokens": tokens,
                    "forward_log_probability": forward,
                    "backward_log_probability": backward,
                    "perplexity": perplexity(-(forward + backward) / (2 * tokens + 2)),
                }

    def predictions(self) -> list[Prediction]:
        """The log-probabilities and the perplexity of each text."""
        return self._predictions
