"""What a model can be asked for: a function for each endpoint, which says why there is none."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bert_jax.data.labelled.batching import GENERAL_LENGTHS, bucket_lengths
from bert_jax.data.labelled.texts import Text, TextRow, encode_text
from bert_jax.files.errors import UserError
from bert_jax.formats.sentence_transformers import MULTI, SPLADE, read_sentence_vectors
from bert_jax.inference.attention import AttentionReader
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.generation import Generator, Prompt, Sampling
from bert_jax.inference.loading import TrainedModel
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.inference.sparse import named_weights
from bert_jax.scores.retrieval import unit
from bert_jax.tools.pages.attention import Origin, attention_page, check_size
from bert_jax.tools.serve import forms
from bert_jax.tools.serve.batching import Computation
from bert_jax.tools.serve.requests import MAX_INPUTS

# Number of tokens that continue a text.
NEW_TOKENS = 30


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Something that a model can be asked for.

    Attributes:
      name: the end of its address, /api/NAME.
      about: one line.
      form: conversion of its inputs to examples.
      computation: what computes their results; endpoints may share it.
      respond: the results of a request -> its answer, JSON values.
      min_inputs, max_inputs: allowed numbers of inputs of a request.
    """

    name: str
    about: str
    form: forms.Form
    computation: Computation
    respond: Callable[[list[Any]], dict[str, Any]]
    min_inputs: int = 1
    max_inputs: int = MAX_INPUTS

    def describe(self) -> dict[str, Any]:
        """Returns what GET /api says of it."""
        fields = {}
        for field in self.form.fields:
            kind = "list of strings" if field.is_list else "string"
            fields[field.name] = {"type": kind, "optional": field.optional}
        return {
            "about": self.about,
            "inputs": fields,
            "min_inputs": self.min_inputs,
            "max_inputs": self.max_inputs,
            "example": {"inputs": self._example()},
        }

    def _example(self) -> list[dict[str, Any]]:
        """Returns the first sample of the page, as the page sends it."""
        if not self.form.views:
            return [{self.form.fields[0].name: forms.SENTENCES[0]}]
        view = self.form.views[0]
        sample = {name: value for name, value in view.samples[0].items() if value}
        if len(view.fields) == 1 and view.fields[0].is_list:
            return [{name: text} for name, texts in sample.items() for text in texts]
        return [sample]


def predict(predictor: Predictor, top_k: int) -> Endpoint:
    """Predictions as `predict` writes them, without `id`; with `counts` of what was cut off.

    Raises:
      UserError: the task's head has random parameters, or no request can have its examples.
    """
    tasks, model = TaskPredictor(predictor, top_k), predictor.model
    form = forms.prediction_form(tasks.task)

    def encode(example: Any) -> tuple[Any, np.ndarray, Counter]:
        tasks.check(example)
        if isinstance(example, Text):
            # A recurrent model would take any length, and compile for each.
            encode_text(example, model.tokenizer, model.encoder.max_position_embeddings, masks=True)
        counts = Counter()
        rows = tasks.task.encode([example], model.tokenizer, counts)
        return example, rows.lengths, +counts

    def run(encoded: Sequence[tuple[Any, np.ndarray, Counter]]) -> list[dict[str, Any]]:
        found = tasks.predict_window([example for example, _, _ in encoded], Counter())
        predictions = [{k: v for k, v in one.items() if k != "id"} for one in found]
        for prediction, (_, _, counts) in zip(predictions, encoded, strict=True):
            prediction |= {"counts": counts} if counts else {}
        return predictions

    def shapes(encoded: tuple[Any, np.ndarray, Counter]) -> Iterable[tuple[int, int]]:
        # Inputs of several rows have the shapes of those of one, in other numbers.
        is_one = len(encoded[1]) == 1
        return predictor.shapes(encoded[1], tasks.task.can_pack) if is_one else ()

    return Endpoint(
        "predict",
        "The predictions of the task that the model was trained for.",
        forms.with_samples(form, model.config, tasks.task),
        Computation(encode, run, shapes),
        lambda results: {"predictions": results},
    )


def generate(model: TrainedModel) -> Endpoint:
    """Texts that are continued by the most probable tokens, as by `generate --greedy`.

    Raises:
      UserError: the model does not predict next tokens, or has too few positions.
    """
    positions = model.encoder.max_position_embeddings
    if positions <= NEW_TOKENS + 1:
        raise UserError(
            f"Texts are not continued: {positions} positions have no room for {NEW_TOKENS} more"
            " tokens."
        )
    generator = Generator(model)
    lengths = bucket_lengths(GENERAL_LENGTHS, positions - NEW_TOKENS)

    def encode(example: Text) -> Prompt:
        # One less than there is room for: texts begin with a token of their own.
        tokens = len(model.tokenizer.encode(example.text_a))
        if tokens > (max_tokens := lengths[-1] - 1):
            raise UserError(
                f"{example.where} has {tokens} tokens, and texts of at most {max_tokens} are"
                " continued: shorten it."
            )
        return generator.prompt(example.text_a, NEW_TOKENS)

    def padded_length(prompt: Prompt) -> int:
        return next(length for length in lengths if length >= len(prompt.ids))

    def run_one(prompt: Prompt) -> str:
        ((_, new),) = generator.generate(
            [prompt],
            Sampling(greedy=True),
            max_new_tokens=NEW_TOKENS,
            length=padded_length(prompt),
        )
        return generator.text(prompt, new)

    return Endpoint(
        "generate",
        f"A text continued by the {NEW_TOKENS} most probable tokens, or to its end.",
        forms.text_form(forms.CONTINUATION),
        Computation(
            encode,
            lambda prompts: list(map(run_one, prompts)),
            lambda prompt: [(padded_length(prompt), 1)],
        ),
        lambda results: {"texts": results},
    )


def vectors(predictor: Predictor, keeps_dtype: bool) -> list[Endpoint]:
    """Vectors of texts, as from `encode`, and their cosine similarities.

    Sparse ones are weights by word; those of tokens, which MaxSim compares, have no similarities.

    Args:
      predictor: the model's.
      keeps_dtype: see `Choice`.

    Raises:
      UserError: the model has sentence vectors of a kind that is not computed here.
    """
    model = predictor.model
    pooling = read_sentence_vectors(model.folder).pooling
    is_sparse, is_multi = pooling == SPLADE, pooling == MULTI
    level = "subword" if is_multi else "sentence"
    choice = Choice(level=level, sparse=is_sparse, multi=is_multi, keeps_dtype=keeps_dtype)
    extractor = FeatureExtractor(predictor, choice)

    def shown(vector: np.ndarray) -> Any:
        return named_weights(vector, model.tokenizer.pieces) if is_sparse else vector.tolist()

    def run(rows: Sequence[TextRow]) -> list[np.ndarray]:
        found = (features for _, features in extractor.run(rows))
        return [f["hidden_states"][0] if is_multi else f["embeddings"] for f in found]

    computation = Computation(
        extractor.row,
        run,
        lambda row: predictor.shapes(np.array([len(row.input_ids)]), True),
    )
    about = "A vector of each text or pair, pooled from its last hidden states."
    about = "A weight of each word for each text or pair." if is_sparse else about
    about = "A vector of each token of each text or pair." if is_multi else about
    endpoints = [
        Endpoint(
            "similarity",
            "Cosine similarity of each pair of texts.",
            forms.text_form(forms.SIMILARITY),
            computation,
            similarities,
            min_inputs=2,
        ),
        Endpoint(
            "encode",
            about,
            forms.text_form(is_pair=True),
            computation,
            lambda results: {"vectors": list(map(shown, results))},
        ),
    ]
    return endpoints[is_multi:]


def similarities(vectors: Sequence[np.ndarray]) -> dict[str, Any]:
    """Returns the cosine of each pair of vectors, [texts][texts]."""
    units = unit(np.stack(vectors))
    # A matrix product may sum the features of a pair in an order that depends on other texts.
    rows = [np.sum(units * one, axis=1) for one in units]
    return {"similarity": np.clip(rows, -1, 1).tolist()}


def attention(predictor: Predictor, top_k: int, name: str, about: str) -> Endpoint:
    """The page of a text's attention.

    Args:
      predictor: the model's.
      top_k: candidates of each layer.
      name: name of the workdir.
      about: the model in a few words.

    Raises:
      UserError: the model has no attention.
    """
    reader = AttentionReader(predictor, top_k)

    def encode(example: Text) -> TextRow:
        row = reader.encode(example)
        if len(row.word_positions) < 1:
            raise UserError(f"{example.where} has no words: give at least one.")
        check_size(reader.config.num_layers, reader.config.num_heads, len(row.input_ids))
        return row

    def run_one(row: TextRow) -> str:
        texts = tuple(text for text in (row.text.text_a, row.text.text_b) if text is not None)
        return attention_page(Origin(name, about, texts, "", reader.no_lens), reader.read(row))

    return Endpoint(
        "attention",
        "A page with the attention of all heads in a text or a pair.",
        forms.text_form(forms.ATTENTION, is_pair=True),
        Computation(
            encode,
            lambda rows: list(map(run_one, rows)),
            lambda row: [(reader.length(row), 1)],
        ),
        lambda results: {"page": results[0]},
        max_inputs=1,
    )
