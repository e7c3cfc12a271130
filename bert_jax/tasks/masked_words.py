"""Predictions of masked words: texts as rows of ids, and the candidates for their masks."""

import dataclasses

import numpy as np

from bert_jax.examples.texts import TextRow
from bert_jax.tasks.task import Prediction
from bert_jax.text.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class MaskedTexts:
    """Texts as ids, with the tokenizer that made them."""

    rows: list[TextRow]
    tokenizer: Tokenizer


class MaskAnswers:
    """The candidates for the masks of all texts."""

    def __init__(self, texts: MaskedTexts, judges_pairs: bool):
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
