"""All that the model of a workdir can be asked for."""

import pathlib
import time
from collections.abc import Callable
from typing import Any

from bert_jax.config.encoders import TransformerConfig
from bert_jax.config.run import RunConfig
from bert_jax.files.errors import UserError
from bert_jax.inference.attention import AttentionReader
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.generation import Generator
from bert_jax.inference.loading import load_workdir
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.tools.serve.abilities import (
    NEW_TOKENS,
    Ability,
    Attention,
    Generation,
    Predictions,
    Vectors,
    describe_model,
    similarities,
)
from bert_jax.tools.serve.forms import SENTENCES, prediction_form, text_form
from bert_jax.tools.serve.limits import Limits
from bert_jax.tools.serve.page import Control, View
from bert_jax.tools.serve.warming import warm_up

# Positions of a batch of requests, padding included.
_BATCH_TOKENS = 1024
# No page of attention has a longer text, and requests of others are limited by their model.
_LONGEST = 8192

CONTINUATION_VIEW = View(
    "Continue",
    "The text with the most probable words after it.",
    (Control("text_a", "Beginning of a text"),),
    ({"text_a": "The function returns"}, {"text_a": "Once upon a time"}),
)
SIMILARITY_VIEW = View(
    "Similarity",
    "The cosine of the vectors of texts, which are means of hidden states.",
    (Control("text_a", "Texts", "two or more, one a line", rows=4, is_list=True),),
    ({"text_a": list(SENTENCES)},),
)
ATTENTION_VIEW = View(
    "Attention",
    "What each head looks at in a text or a pair, and what each layer would predict.",
    (Control("text_a", "Text"), Control("text_b", "Second text", optional=True)),
    (
        {"text_a": "The cat sat on the mat because it was tired.", "text_b": ""},
        {"text_a": "The [MASK] of the list is returned.", "text_b": ""},
    ),
)


class Service:
    """The model of a workdir, on the devices once, and its abilities.

    Attributes:
      name: of the workdir.
      about: the model in a few words.
      abilities: in the order of the page.
      missing: what the model cannot be asked for, and why.
    """

    def __init__(self, config: RunConfig, workdir: str, limits: Limits, top_k: int = 5):
        """Loads the model.

        Args:
          config: of the workdir.
          workdir: of a run, or of imported weights.
          limits: of requests.
          top_k: candidates for each mask.

        Raises:
          UserError: there is no checkpoint, or it does not fit.
        """
        folder = pathlib.Path(workdir).absolute()
        is_seed = folder.name.startswith("seed-")
        self.name = "/".join(folder.parts[-2:]) if is_seed else folder.name
        self.about = describe_model(config)
        self.missing: dict[str, str] = {}
        self.abilities: list[Ability] = []
        self._predictor = Predictor(load_workdir(config, workdir), _BATCH_TOKENS)
        self._model = self._predictor.model
        self._add_predictions(limits, top_k)
        self._add_generation()
        self._add_vectors()
        self._add_attention(top_k)

    def _add_predictions(self, limits: Limits, top_k: int) -> None:
        try:
            predictor = TaskPredictor(self._predictor, top_k)
        except UserError as error:  # imported weights may have no head
            self.missing["predict"] = str(error)
            return
        task = self._model.config.task
        form = prediction_form(task, predictor.data, limits)
        if form is None:
            self.missing["predict"] = f"config.task={task!r} has no form for requests."
            return
        about = "The predictions of the task that the model was trained for."
        computation = Predictions(self._predictor, predictor)
        self.abilities.append(
            Ability("predict", about, form, computation, lambda found: {"predictions": found})
        )

    def _add_generation(self) -> None:
        if not self._model.task.reads_forward or "predict" in self.missing:
            return
        positions = self._model.encoder.max_position_embeddings
        if positions <= NEW_TOKENS + 1:
            self.missing["generate"] = (
                f"Texts are not continued: {positions} positions have no room for {NEW_TOKENS}"
                " more tokens."
            )
            return
        generation = Generation(Generator(self._model))
        about = f"A text continued by the {NEW_TOKENS} most probable tokens, or to its end."
        form = text_form(CONTINUATION_VIEW)
        self.abilities.append(
            Ability("generate", about, form, generation, lambda found: {"texts": found})
        )

    def _add_vectors(self) -> None:
        choice = Choice(level="sentence", pooling="mean")
        vectors = Vectors(self._predictor, FeatureExtractor(self._predictor, choice))
        about = "The cosine of the vectors of each pair of texts."
        form = text_form(SIMILARITY_VIEW)
        self.abilities.append(Ability("similarity", about, form, vectors, similarities, least=2))
        about = "A vector of each text or pair: the mean of its last hidden states."

        def respond(found: list[Any]) -> dict[str, Any]:
            return {"vectors": [vector.tolist() for vector in found]}

        self.abilities.append(Ability("features", about, text_form(is_pair=True), vectors, respond))

    def _add_attention(self, top_k: int) -> None:
        if not isinstance(self._model.encoder, TransformerConfig):
            name = self._model.encoder.name
            self.missing["attention"] = f"The model {name!r} has no attention."
            return
        reader = AttentionReader(self._predictor, top_k)
        attention = Attention(reader, self.name, self.about)
        about = "A page with the attention of all heads in a text or a pair."
        self.abilities.append(
            Ability(
                "attention",
                about,
                text_form(ATTENTION_VIEW, is_pair=True),
                attention,
                lambda found: {"page": found[0]},
                most=1,
            )
        )

    def warm_up(self, report: Callable[[str], None]) -> None:
        """Compiles all shapes; calls `report` with a line for each computation."""
        done = set()
        for ability in self.abilities:
            if (key := id(ability.computation)) in done:
                continue
            done.add(key)
            start, form = time.perf_counter(), ability.form
            shapes = warm_up(
                ability.computation,
                lambda text, form=form: form.make(form.fill(text), "A text"),
                self._model.tokenizer,
                min(_LONGEST, self._model.encoder.max_position_embeddings),
                self._model.batch_shards,
            )
            seconds = time.perf_counter() - start
            report(f"compiled   {ability.name}: {shapes} shapes, {seconds:.1f} s")
