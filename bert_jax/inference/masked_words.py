"""From a pre-trained model to answers: what stands at each [MASK], and does B follow A?

The input has a text a line, or a JSON object a line with `text_a` and, for a pair, `text_b`. The
output has a JSON object a line, in the same order:

    {"next_sentence": {"is_next": 0.97, "random_next": 0.03},
     "masks": [{"position": 3, "candidates": [{"token": "length", "probability": 0.41}, ...]}]}

`position` counts tokens, [CLS] being 0. "[MASK]" in the text is the special token here, unlike in
training text. `next_sentence` is null for a single text, and for a model without that head.
"""

import functools
import json
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax.files.atomic import whole_file
from bert_jax.inference.model import (
    BATCH_TOKENS,
    Progress,
    Row,
    TrainedModel,
    check_has_masked_lm,
    in_order,
    is_random,
)
from bert_jax.inference.texts import Text, check_files, read_texts
from bert_jax.models.heads import BertForPreTraining


class Predictor:
    """A pre-trained model, ready to answer."""

    def __init__(
        self, config: ConfigDict, workdir: str, top_k: int, batch_tokens: int = BATCH_TOKENS
    ):
        """Loads vocabulary and parameters.

        Args:
          config: of the workdir.
          workdir: of a run, or of imported weights.
          top_k: candidates for each [MASK].
          batch_tokens: token slots of a batch; few answer a single question sooner.

        Raises:
          ValueError: if there is no checkpoint, or no masked-LM head in it.
        """
        check_has_masked_lm(config, workdir)
        self.model = TrainedModel(config, workdir, batch_tokens)
        self._judges_pairs = not is_random(workdir, "next_sentence")
        num_pieces = len(self.model.tokenizer.pieces)
        network = BertForPreTraining(self.model.config)
        self._forward = self.model.compile(
            functools.partial(_forward, network, num_pieces, min(top_k, num_pieces))
        )

    def question(self, text_a: str, text_b: str | None = None) -> Row:
        """Tokenizes a text or a pair.

        Raises:
          ValueError: if it has more tokens than the model has positions.
        """
        return self.model.row(Text(text_a, text_b), masks=True)

    def answer(
        self, questions: Iterable[Row], progress: Progress | None = None
    ) -> Iterator[dict[str, Any]]:
        """Answers in the order of the questions, which are read as they are needed."""
        results = self.model.run(self._forward, questions, progress)
        return in_order((number, self._describe(row, out)) for number, row, out in results)

    def _describe(self, row: Row, output: dict[str, np.ndarray]) -> dict[str, Any]:
        pieces = self.model.tokenizer.pieces
        masks = [
            {
                "position": position,
                "candidates": [
                    {"token": pieces[token], "probability": float(probability)}
                    for token, probability in zip(tokens, probabilities, strict=True)
                ],
            }
            for position, tokens, probabilities in zip(
                row.asked, output["tokens"], output["probabilities"], strict=False
            )
        ]
        pair = None
        if row.is_pair and self._judges_pairs and "next_sentence" in output:
            is_next, random_next = map(float, output["next_sentence"])
            pair = {"is_next": is_next, "random_next": random_next}
        return {"next_sentence": pair, "masks": masks}


def _forward(
    network: BertForPreTraining, num_pieces: int, top_k: int, params: Any, batch: Any
) -> dict[str, jax.Array]:
    """float32[batch, masks, top_k] probabilities, their tokens, and float32[batch, 2]."""
    outputs: Any = network.apply({"params": params}, batch, deterministic=True)
    # The table of the model may have more rows than the vocabulary has pieces.
    logits = outputs.masked_lm_logits[..., :num_pieces]
    probabilities, tokens = jax.lax.top_k(jax.nn.softmax(logits), top_k)
    answers = {"probabilities": probabilities, "tokens": tokens}
    if outputs.next_sentence_logits is not None:
        answers["next_sentence"] = jax.nn.softmax(outputs.next_sentence_logits)[:, 0]
    return answers


def predict(
    config: ConfigDict, workdir: str, input_path: str, output_path: str, top_k: int = 5
) -> int:
    """Answers every line of a file; the output is there whole or not at all.

    Returns:
      How many lines were answered.

    Raises:
      ValueError: for a workdir without a checkpoint, or, before the first answer, a line that
        cannot be used.
    """
    check_files(input_path, output_path)
    predictor = Predictor(config, workdir, top_k)

    def questions() -> Iterator[Row]:
        return (predictor.model.row(text, masks=True) for text in read_texts(input_path))

    count = sum(1 for _ in questions())
    progress = Progress(count)
    with whole_file(output_path) as path, open(path, "w", encoding="utf-8") as file:
        for answer in predictor.answer(questions(), progress):
            file.write(json.dumps(answer, ensure_ascii=False) + "\n")
    progress.finish(count, f"lines of {input_path} answered in {output_path}")
    return count
