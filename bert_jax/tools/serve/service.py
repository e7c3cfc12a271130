"""A model, and all that it can be asked for."""

import functools
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.inference.loading import TrainedModel
from bert_jax.inference.predictor import Predictor
from bert_jax.tools.serve import endpoints
from bert_jax.tools.serve.endpoints import Endpoint

# Positions per request batch, padding included.
_BATCH_TOKENS = 1024
# No page of attention has a longer text, and requests of others are limited by their model.
_MAX_LENGTH = 8192
# Lengths that batches are padded to differ by more than this many tokens.
_LENGTH_STEP = 4


class Service:
    """A model, on the devices once, and its endpoints.

    Attributes:
      name: name of its folder.
      about: the model in a few words.
      endpoints: endpoints in the order of the page.
      missing: what the model cannot be asked for, and why.
    """

    def __init__(self, model: TrainedModel, top_k: int = 5, keeps_dtype: bool = False):
        """Finds out what the model can do.

        Args:
          model: the model to serve.
          top_k: candidates for each mask.
          keeps_dtype: whether vectors are computed in the model's dtype; see `Choice`.
        """
        folder, encoder = pathlib.Path(model.folder), model.encoder
        is_seed = folder.name.startswith("seed-")
        self.name = "/".join(folder.parts[-2:]) if is_seed else folder.name
        self.about = (
            f"{encoder.name} for {model.config.task.name}: {encoder.num_layers} layers, hidden size"
            f" {encoder.hidden_size}"
        )
        self.endpoints: list[Endpoint] = []
        self.missing: dict[str, str] = {}
        predictor = Predictor(model, 0 if model.exact else _BATCH_TOKENS)
        self._model = model
        self._add("predict", lambda: [endpoints.predict(predictor, top_k)])
        if self._model.task.READS_FORWARD:
            self._add("generate", lambda: [endpoints.generate(self._model)])
        self._add("encode", lambda: endpoints.vectors(predictor, keeps_dtype))
        about = (top_k, self.name, self.about)
        self._add("attention", lambda: [endpoints.attention(predictor, *about)])

    def _add(self, name: str, make: Callable[[], Iterable[Endpoint]]) -> None:
        try:
            self.endpoints += make()
        except UserError as error:
            self.missing[name] = str(error)

    def programs(self) -> dict[str, list[Callable[[], Any]]]:
        """Returns functions that compile one program each, of all those that requests can need.

        They are listed by endpoint. What several endpoints share is listed for the first.
        """
        names = {e.computation: e.name for e in reversed(self.endpoints)}
        return {e.name: self._batches(e) for e in self.endpoints if names[e.computation] == e.name}

    def _batches(self, endpoint: Endpoint) -> list[Callable[[], Any]]:
        """Returns functions that run a batch of each shape."""
        computation, form = endpoint.computation, endpoint.form
        longest = min(_MAX_LENGTH, self._model.encoder.max_position_embeddings)
        first, *others = (
            field for field in form.fields if field is form.fields[0] or not field.optional
        )
        # Length of a batch -> its longest input, no two of which share a row, and its maximum rows.
        found = {}
        for tokens in range(1, longest + 1, _LENGTH_STEP):
            values = {field.name: ("a",) * 4 if field.is_list else "a" for field in others}
            values[first.name] = "a " * tokens + "[MASK]"
            try:
                encoded = computation.encode(form.make(values, "A text"))
            except UserError:
                break  # this and longer ones are refused
            found |= {length: (encoded, rows) for length, rows in computation.shapes(encoded)}
        batches = []
        for encoded, max_rows in found.values():
            rows = min(self._model.batch_shards, max_rows)
            while rows < max_rows:
                batches.append([encoded] * rows)
                rows *= 4
            batches.append([encoded] * max_rows)
        return [functools.partial(computation.run, batch) for batch in batches]
