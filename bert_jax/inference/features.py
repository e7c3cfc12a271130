"""Contextual features: hidden states of each sub-word, word or sentence."""

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.encoder_fields import TransformerConfig
from bert_jax.data.labelled.texts import Text, TextRow, encode_text, word_spans
from bert_jax.devices import processor
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import MULTI, SPLADE, read_sentence_vectors
from bert_jax.inference.feature_choice import SEVERAL, Choice
from bert_jax.inference.loading import TrainedModel
from bert_jax.inference.long_texts import truncate, windows
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.scoring import check_fills_masks
from bert_jax.models import make_encoder
from bert_jax.models.layer_choice import LAYER_CHOICES, choose
from bert_jax.models.model import EncoderConfig
from bert_jax.models.pooling import EncoderWithPooler, pool
from bert_jax.scores.retrieval import unit
from bert_jax.tasks.colbert.model import ColbertModel
from bert_jax.tasks.splade.model import SpladeModel

Features = dict[str, np.ndarray]
_ADVICE = "shorten it, or encode it with truncate or windows"
# Vectors, other than dense, that a folder of sentence-transformers may give, and the flag for them.
_OTHER = {SPLADE: ("sparse vectors", "sparse"), MULTI: ("a vector of each token", "multi")}
# float32[tokens, features] -> float32[features].
_POOL: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cls": lambda hidden: hidden[0],
    "mean": lambda hidden: hidden.mean(axis=0),
    "max": lambda hidden: hidden.max(axis=0),
}


class FeatureExtractor:
    """Extracts features with a trained model.

    Attributes:
      choice: which features, with `pooling`, `normalize` and the text of `prompt` resolved.
      max_length: maximum number of tokens, special ones included.
    """

    def __init__(self, predictor: Predictor, choice: Choice):
        """Compiles on first use.

        Raises:
          UserError: the model has too few layers or dimensions, one direction where two are
            needed, or no prompt of this name; or its modules.json asks for what is not supported.
        """
        self.model = predictor.model
        check_layers(choice, self.model.encoder)
        self.choice, self.max_length = decide(choice, self.model)
        self._predictor = predictor
        config = self.model.encoder
        if choice.sparse or choice.multi:
            features = self.model.config.get("task.features", 0)
            module = SpladeModel(config) if choice.sparse else ColbertModel(config, features)
            self._forward = self.model.compile(functools.partial(_forward_vectors, module))
            return
        make = EncoderWithPooler if self.model.has_pooler else make_encoder
        is_float32 = isinstance(config, TransformerConfig) and config.dtype == "float32"
        if is_float32 and choice.level == "sentence" and not choice.keeps_dtype:
            if jax.default_backend() == "cpu" and processor.gains_from_bfloat16():
                config = dataclasses.replace(config, dtype="bfloat16_products")
        # With windows, the hidden states of the whole text are joined before they are pooled.
        is_pooled = choice.level == "sentence" and choice.long != "windows"
        pooling = self.choice.pooling if is_pooled else ""
        forward = functools.partial(_forward, make(config), choice, pooling)
        self._forward = self.model.compile(forward, config)

    def row(self, text: Text) -> TextRow:
        """Tokenizes a text or a pair, and truncates it with `long="truncate"`.

        Raises:
          UserError: it has more tokens than the model takes, with `long="error"`.
        """
        if self.choice.prompt:
            text = dataclasses.replace(text, text_a=self.choice.prompt + text.text_a)
        max_length = self.max_length if self.choice.long == "error" else None
        row = encode_text(text, self.model.tokenizer, max_length, advice=_ADVICE)
        return truncate(row, self.max_length) if self.choice.long == "truncate" else row

    def run(
        self, rows: Iterable[TextRow], done: Callable[[int], None] | None = None
    ) -> Iterator[tuple[TextRow, Features]]:
        """Yields each text, in order, with its features (docs/encode.md), without padding.

        Args:
          rows: results of `row`, read as they are needed.
          done: called with the number of texts finished since the last call.
        """
        if self.choice.long == "windows":
            outputs = self._read_windows(rows, done)
        else:
            outputs = self._predictor.stream(self._forward, rows, done)
        for row, output in outputs:
            features = {"input_ids": row.input_ids, "attention_mask": np.ones_like(row.input_ids)}
            if self.choice.level == "sentence":
                kept = output["embeddings"][: self.choice.dimensions or None]
                features["embeddings"] = unit(kept) if self.choice.normalize else kept
            else:
                hidden = output["hidden_states"].swapaxes(0, 1)  # [layers, seq, features]
                if self.choice.level == "word":
                    spans = word_spans(row, self.model.tokenizer)
                    hidden = self._of_words(hidden, spans)
                    features["word_spans"] = spans
                    features["word_characters"] = self._word_characters(row, spans)
                features["hidden_states"] = unit(hidden) if self.choice.normalize else hidden
            if "pooled" in output:
                features["pooled"] = output["pooled"]
            yield row, features

    def _read_windows(
        self, rows: Iterable[TextRow], done: Callable[[int], None] | None
    ) -> Iterator[tuple[TextRow, Features]]:
        """Yields each text with what the model returns for it, joined from its windows."""
        texts: deque[tuple[TextRow, list[slice]]] = deque()

        def read() -> Iterator[TextRow]:
            for row in rows:
                found = windows(row, self.max_length, self.choice.stride)
                texts.append((row, [counts for _, counts in found]))
                yield from (window for window, _ in found)

        outputs = self._predictor.stream(self._forward, read())
        for _, output in outputs:
            row, (counts, *others) = texts.popleft()
            parts = [output["hidden_states"][counts]]
            for counts in others:
                parts.append(next(outputs)[1]["hidden_states"][counts])
            features = {**output, "hidden_states": np.concatenate(parts)}
            if self.choice.level == "sentence":
                hidden = features.pop("hidden_states")[:, 0]
                features["embeddings"] = _POOL[self.choice.pooling](hidden)
            if done:
                done(1)
            yield row, features

    def _word_characters(self, row: TextRow, spans: np.ndarray) -> np.ndarray:
        """int32[words, 3]: 0 in text_a, 1 in text_b; the characters [start, stop) of each word."""
        texts = (row.text.text_a, row.text.text_b or "")
        num_first = int(np.searchsorted(row.word_positions, row.first_length))
        counts = (num_first, len(row.word_positions) - num_first)  # tokens cut off have no position
        both = [
            (which, *span)
            for which, text in enumerate(texts)
            for span in self.model.tokenizer.character_spans(text)[: counts[which]]
        ]
        places = np.zeros((len(row.input_ids), 3), np.int32)
        places[row.word_positions] = np.array(both, np.int32).reshape(-1, 3)
        first, last = places[spans[:, 0]], places[spans[:, 1] - 1]
        return np.stack([first[:, 0], first[:, 1], last[:, 2]], axis=1)

    def _of_words(self, hidden: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """float32[layers, seq, features] -> float32[layers, words, features]."""
        if self.choice.word == "first" or not len(spans):
            return hidden[:, spans[:, 0]]
        # From each start to the next one; the [SEP] between two texts is cut off by its own start.
        edges = spans.ravel()
        if edges[-1] == hidden.shape[1]:  # no special token follows the last word
            edges = edges[:-1]
        sums = np.add.reduceat(hidden, edges, axis=1)[:, ::2]
        return sums / (spans[:, 1] - spans[:, 0])[None, :, None].astype(np.float32)

    def names(self, row: TextRow, features: Features) -> dict[str, list[str]]:
        """Returns the names of the vectors: `tokens`, or `words` as the text has them."""
        if self.choice.level == "subword":
            return {"tokens": [self.model.tokenizer.pieces[i] for i in row.input_ids]}
        if self.choice.level == "sentence":
            return {}
        texts = (row.text.text_a, row.text.text_b or "")
        places = features["word_characters"].tolist()
        return {"words": [texts[which][start:stop] for which, start, stop in places]}


def decide(choice: Choice, model: TrainedModel) -> tuple[Choice, int]:
    """Returns the choice with pooling and scaling resolved, and the maximum length in tokens."""
    longest = model.encoder.max_position_embeddings
    if choice.level != "sentence" and not choice.multi:
        return choice, longest
    if choice.multi and model.task.EMBEDS != "multi":
        raise UserError(
            f"{model.folder} gives no vectors of tokens that MaxSim compares: train it on pairs"
            " with --task=colbert."
        )
    vectors = read_sentence_vectors(model.folder)
    if vectors.unknown and not choice.pooling:
        raise UserError(
            f"The modules.json of {model.folder} {vectors.unknown}, which is not done here:"
            " pooling=mean, max or cls gives other vectors."
        )
    max_length = min(longest, vectors.max_length or longest)
    if choice.sparse and model.task.EMBEDS != "sparse":
        check_fills_masks(model)
    if choice.sparse or choice.multi:
        return dataclasses.replace(choice, prompt=vectors.prompt(choice.prompt)), max_length
    if vectors.pooling in _OTHER and not choice.pooling:
        what, flag = _OTHER[vectors.pooling]
        raise UserError(
            f"{model.folder} gives {what}: encode --{flag}, or encode_{flag} in Python;"
            " pooling=mean, max or cls gives other vectors."
        )
    size = model.encoder.hidden_size * (4 if choice.layers == "concat_last_4" else 1)
    if choice.dimensions > size:
        raise UserError(
            f"dimensions={choice.dimensions} is above the {size} dimensions of a vector."
        )
    decided = dataclasses.replace(
        choice,
        pooling=choice.pooling or vectors.pooling or "mean",
        normalize=vectors.normalize if choice.normalize is None else choice.normalize,
        prompt=vectors.prompt(choice.prompt),
    )
    return decided, max_length


def check_layers(choice: Choice, model: EncoderConfig) -> None:
    """Raises UserError if a model lacks the chosen layers, or directions of reading."""
    layers, num_layers = choice.layers, model.num_layers
    if isinstance(layers, int):
        if not -num_layers - 1 <= layers <= num_layers:
            raise UserError(
                f"layer={layers} must be from {-num_layers - 1} to {num_layers}: the model has"
                f" {num_layers} layers and the embeddings' output, 0."
            )
        return
    if num_layers < (needed := LAYER_CHOICES[layers].min_layers):
        raise UserError(f"layers={layers} needs {needed} layers, and the model has {num_layers}.")
    if len(choice.weights) > num_layers + 1:
        raise UserError(
            f"weights has {len(choice.weights)} numbers, and the model only {num_layers}"
            " layers and the embeddings' output."
        )
    if layers == "directions" and not model.has_directions:
        raise UserError(
            f"layers=directions is for models that read in two directions, such as elmo, and not"
            f" for {model.name}: use layers=all."
        )


def _forward(
    encoder: Any, choice: Choice, pooling: str, params: Any, batch: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """Returns float32 features of packed rows; `pooling` is "" for features of each token.

    Returns:
      `hidden_states` [batch, seq, layers, features] or `embeddings` [batch, N, features], and
      `pooled` [batch, N, hidden], if there is a pooler.
    """
    encoded = encoder.apply(
        {"params": params[encoder.config.name]}, batch, deterministic=True, keep_all=True
    )
    pooled = None
    if isinstance(encoded, tuple):
        encoded, pooled = encoded
    states = [hidden.astype(jnp.float32) for hidden in encoded.all_hidden]
    if isinstance(choice.layers, int):
        hidden = states[choice.layers][:, None]
    else:
        hidden = choose(choice.layers, states, weights=choice.weights)
        hidden = hidden if choice.layers in SEVERAL else hidden[:, None]
    if pooling:
        features = {"embeddings": pool(pooling, hidden[:, 0], batch)}
    else:
        features = {"hidden_states": hidden.swapaxes(1, 2)}
    if pooled is not None:
        features["pooled"] = pooled.astype(jnp.float32)
    return features


def _forward_vectors(
    module: SpladeModel | ColbertModel, params: Any, batch: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """Returns, for packed rows, the vectors that a model was trained to give.

    float32[batch, N, vocab_size] `embeddings`, or, with ColBERT, float32[batch, seq, 1, features]
    `hidden_states`.
    """
    outputs: Any = module.apply({"params": params}, batch, deterministic=True)
    if isinstance(module, SpladeModel):
        return {"embeddings": outputs.vectors}
    return {"hidden_states": outputs.vectors.swapaxes(1, 2)}
