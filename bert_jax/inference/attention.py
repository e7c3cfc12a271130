"""Attention probabilities of a text, and what each layer would predict.

The prediction of a layer ("logit lens") is that of the language model head, applied to the hidden
states of the layer instead of those of the last one. With normalization before the sub-layers
(norm_place="pre"), they first go through the encoder's final norm, as the last layer's do.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.data.batch import Batch
from bert_jax.data.labelled.texts import EncodedTexts, Text, TextRow, encode_text, word_spans
from bert_jax.files.errors import UserError
from bert_jax.inference.head_statistics import mean_statistics, special_ids, sum_heads
from bert_jax.inference.loading import TrainedModel
from bert_jax.inference.predictor import Predictor
from bert_jax.models import make_encoder
from bert_jax.models.heads import LMHead, predicting_positions
from bert_jax.models.layers.norm import layer_norm
from bert_jax.models.model import Encoded
from bert_jax.scores.attention import STATISTICS, attention_of_words
from bert_jax.tasks.causal_lm.task import predicted_positions
from bert_jax.text.tokenization import Tokenizer


class AttentionReader:
    """Reads attention with a trained model.

    Attributes:
      config: configuration of its encoder, with an attention that returns probabilities.
      no_lens: why its layers predict no tokens; "" if they do.
    """

    def __init__(self, predictor: Predictor, top_k: int = 5):
        """Compiles on first use.

        Raises:
          UserError: the model has no attention.
        """
        self.model = model = predictor.model
        config = model.encoder
        if not isinstance(config, TransformerConfig):
            raise UserError(
                f"config.model.name={config.name!r} has no attention: give a Transformer."
            )
        self.config = dataclasses.replace(config, attention="einsum", remat=False)
        # Texts are read one at a time, so a batch needs no further rows.
        self._predictor = Predictor(model, batch_tokens=1)
        self.no_lens = _why_no_lens(model)
        self._reads_forward = model.task.READS_FORWARD
        num_pieces = len(model.tokenizer.pieces)
        settings = self.config, min(top_k, num_pieces), num_pieces, self._reads_forward
        lens = None if self.no_lens else functools.partial(_lens, *settings)
        self._forward = model.compile(functools.partial(self._read, lens=lens, keeps=True))
        self._sums = model.compile(functools.partial(self._read, lens=None, keeps=False))

    def encode(self, text: Text) -> TextRow:
        """Tokenizes a text or a pair; "[MASK]" in it is the special token, if there is one.

        Raises:
          UserError: it has more tokens than the model has positions.
        """
        tokenizer = self.model.tokenizer
        has_masks = tokenizer.mask_id >= 0
        row = encode_text(text, tokenizer, self.config.max_position_embeddings, masks=has_masks)
        task: Any = self.model.task
        return task.begin(row, tokenizer) if self._reads_forward else row

    def length(self, row: TextRow) -> int:
        """Returns the number of positions that a text is padded to."""
        ((_, length),) = self._predictor.batches(np.array([len(row.input_ids)]), packs=False)
        return length

    def read(self, row: TextRow) -> dict[str, np.ndarray]:
        """Returns the arrays of a text; docs/attention.md lists them.

        Raises:
          UserError: it has no words.
        """
        tokenizer, length = self.model.tokenizer, len(row.input_ids)
        padded = [0] + [-1] * (self.model.batch_shards - 1)
        batch = EncodedTexts([row], tokenizer).take(np.array(padded)[:, None], self.length(row))
        found = {name: array[0] for name, array in jax.device_get(self._forward(batch)).items()}
        attention = found["attention"][..., :length, :length]
        statistics = mean_statistics(found["sums"], float(found["attending"]), "The text")
        spans = _all_spans(row, tokenizer)
        pieces = [tokenizer.pieces[i] for i in row.input_ids]
        # Decoded; as they are in the vocabulary, if decoding gives nothing.
        words = [
            tokenizer.decode(row.input_ids[start:stop].tolist()) or "".join(pieces[start:stop])
            for start, stop in spans
        ]
        return {
            "tokens": np.array(pieces),
            "input_ids": row.input_ids,
            "segments": (np.arange(length) >= row.first_length).astype(np.int32),
            "is_special": np.isin(row.input_ids, special_ids(tokenizer)),
            "words": np.array(words),
            "word_spans": spans,
            "attention": attention,
            "word_attention": attention_of_words(attention, spans),
            "statistics": np.array(list(STATISTICS)),
            "text_statistics": statistics,
            **self._lens_of(row, found),
        }

    def statistics(self, batches: Iterable[Batch]) -> tuple[np.ndarray, int, int]:
        """Returns the statistics of the heads over many rows.

        Args:
          batches: int32[batch, seq] `input_ids`, `token_type_ids`, `position_ids`, `example_ids`.

        Returns:
          float32[statistics, layers, heads], in the order of STATISTICS; the number of rows that
          are not padding; and the number of tokens that attend.

        Raises:
          UserError: no token attends.
        """
        total, attending, rows = np.zeros(()), 0.0, 0
        for batch in batches:
            found = jax.device_get(self._sums(batch))
            total = total + found["sums"].sum(axis=0, dtype=np.float64)
            attending += float(found["attending"].sum(dtype=np.float64))
            rows += int((batch["example_ids"] > 0).any(axis=1).sum())
        return mean_statistics(total, attending, "The sample"), rows, round(attending)

    def _lens_of(self, row: TextRow, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the predictions of the layers for the masks, or for every word but the first."""
        if self.no_lens or not (self._reads_forward or row.masked):
            return {}
        if self._reads_forward:
            places = positions = predicted_positions(row) - 1
        else:
            places, positions = np.arange(len(row.masked)), np.array(row.masked, np.int32)
        pieces = np.array(self.model.tokenizer.pieces)
        return {
            "lens_positions": positions,
            "lens_offset": np.array(int(self._reads_forward), np.int32),
            "lens_tokens": pieces[found["top_ids"][:, places]],
            "lens_probabilities": found["top_probabilities"][:, places],
            "lens_answers": pieces[found["answers"][places]],
            "lens_answer_probabilities": found["answer_probabilities"][:, places],
        }

    def _read(
        self,
        params: Any,
        batch: Any,
        *,
        lens: Callable[..., dict[str, jax.Array]] | None,
        keeps: bool,
    ) -> dict[str, jax.Array]:
        """Returns what `sum_heads` and `lens` return.

        If `keeps`, also `attention`, float32[batch, layers, heads, seq, seq].
        """
        encoded: Any = make_encoder(self.config).apply(
            {"params": params[self.config.name]},
            batch,
            deterministic=True,
            keep_all=True,
            keep_attention=True,
        )
        return {
            **({"attention": jnp.stack(encoded.attention, axis=1)} if keeps else {}),
            **sum_heads(self.config, self.model.tokenizer, encoded.attention, batch),
            **(lens(params, batch, encoded) if lens else {}),
        }


def _lens(
    config: TransformerConfig,
    top_k: int,
    num_pieces: int,
    reads_forward: bool,
    params: Any,
    batch: Any,
    encoded: Encoded,
) -> dict[str, jax.Array]:
    """Returns what the embeddings and each layer would predict.

    Each position predicts the next token if `reads_forward`, otherwise the `masked_lm_positions` of
    the batch predict their own. The model's table may have more rows than `num_pieces`.

    Returns:
      [batch, layers + 1, positions, top_k] `top_ids`, int32, and `top_probabilities`, float32;
      int32[batch, positions] `answers`, the next token or the most probable one of the last layer,
      and float32[batch, layers + 1, positions] `answer_probabilities`.
    """
    table = params[config.name]["embeddings"]["word_embeddings"]["embedding"]
    head = {"params": params.get("masked_lm", {})}
    hidden: list[Any] = [*encoded.all_hidden]
    if config.norm_place == "pre":
        norm = {"params": params[config.name]["encoder"]["layer_norm"]}
        hidden[:-1] = [layer_norm(config).apply(norm, states) for states in hidden[:-1]]
    probs = []
    for states in hidden:
        if not reads_forward:
            positions = predicting_positions(config, batch["masked_lm_positions"])
            states = jnp.take_along_axis(states, positions[:, :, None], axis=1)
        scores: Any = LMHead(config).apply(head, states, table)
        probs.append(jax.nn.softmax(scores.logits()[..., :num_pieces]))
    top = [jax.lax.top_k(layer, top_k) for layer in probs]
    answers = jnp.roll(batch["input_ids"], -1, axis=1) if reads_forward else top[-1][1][:, :, 0]
    of_answers = [jnp.take_along_axis(p, answers[..., None], axis=2)[..., 0] for p in probs]
    return {
        "top_ids": jnp.stack([ids for _, ids in top], axis=1),
        "top_probabilities": jnp.stack([values for values, _ in top], axis=1),
        "answers": answers,
        "answer_probabilities": jnp.stack(of_answers, axis=1),
    }


def _all_spans(row: TextRow, tokenizer: Tokenizer) -> np.ndarray:
    """int32[words, 2]: the positions [start, stop) of each word; special tokens are words too."""
    of_words = word_spans(row, tokenizer)
    specials = np.setdiff1d(np.arange(len(row.input_ids), dtype=np.int32), row.word_positions)
    spans = np.concatenate([of_words, np.stack([specials, specials + 1], axis=1)])
    return spans[np.argsort(spans[:, 0])].astype(np.int32)


def _why_no_lens(model: TrainedModel) -> str:
    if not (model.task.FILLS_MASKS or model.task.READS_FORWARD):
        name = model.config.task.name
        return f"The model was trained for the task {name!r}: it has no head that predicts words."
    if model.encoder.has_copy_head:
        return (
            "The model also copies tokens (config.model.copy_head=True), which the predictions of"
            " its layers would leave out."
        )
    if any(name.startswith("masked_lm/") for name in model.untrained):
        return "The weights were imported without a head that predicts words."
    return ""
