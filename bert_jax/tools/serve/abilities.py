"""What a model can be asked for: computations on inputs, and the answers made of their results."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.config.run import RunConfig
from bert_jax.data.labelled.batching import GENERAL_LENGTHS, bucket_lengths
from bert_jax.data.labelled.texts import Text, encode_text
from bert_jax.files.errors import UserError
from bert_jax.inference.attention import AttentionReader
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.generation import Generator, Prompt
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.inference.sampling import Sampling
from bert_jax.tools.pages.attention import Origin, attention_page, check_size
from bert_jax.tools.serve.forms import SENTENCES, Form
from bert_jax.tools.serve.warming import Shaped

# That follow a text which is continued.
NEW_TOKENS = 30


@dataclasses.dataclass(frozen=True)
class Ability:
    """Something that a model can be asked for.

    Attributes:
      name: the end of its address, /api/NAME.
      about: one line.
      form: of its inputs.
      computation: of the results.
      respond: the results of a request -> its answer, JSON values.
      least, most: inputs of a request; 0: the server's limit.
    """

    name: str
    about: str
    form: Form
    computation: Shaped
    respond: Callable[[list[Any]], dict[str, Any]]
    least: int = 1
    most: int = 0

    @property
    def example(self) -> list[dict[str, Any]]:
        """Inputs to try."""
        if not self.form.views:
            return [{self.form.fields[0].name: SENTENCES[0]}]
        view = self.form.views[0]
        sample = {name: value for name, value in view.samples[0].items() if value}
        if len(view.controls) == 1 and view.controls[0].is_list:
            ((name, texts),) = sample.items()
            return [{name: text} for text in texts]
        return [sample]


class Predictions:
    """The predictions of the task that the model was trained for."""

    def __init__(self, predictor: Predictor, task: TaskPredictor):
        self._predictor, self._task = predictor, task

    def check(self, example: Any) -> None:
        """Encodes the example: a task's encoder says what it cannot take."""
        self._task.check(example)
        model = self._predictor.model
        if isinstance(example, Text):
            # A recurrent model would take any length, and each is compiled for.
            encode_text(example, model.tokenizer, model.encoder.max_position_embeddings, masks=True)
        self._encode(example, Counter())

    def run(self, examples: Sequence[Any]) -> list[dict[str, Any]]:
        """As `predict` writes them, without `id`; with `counts` where something was cut off."""
        counts = Counter()
        found = self._task.predict_window(list(examples), counts)
        predictions = [{k: v for k, v in one.items() if k != "id"} for one in found]
        if any(counts.values()):
            for example, prediction in zip(examples, predictions, strict=True):
                self._encode(example, of_one := Counter())
                if cut := {name: count for name, count in of_one.items() if count}:
                    prediction["counts"] = cut
        return predictions

    def shapes(self, example: Any) -> Iterator[tuple[int, int]]:
        lengths = self._encode(example, Counter()).lengths
        return self._predictor.shapes(lengths, self._task.data.can_pack)

    def _encode(self, example: Any, counts: Counter) -> Any:
        return self._task.data.encode([example], self._predictor.model.tokenizer, counts)


class Vectors:
    """Vectors of texts: the means of their hidden states, as `features --level=sentence`."""

    def __init__(self, predictor: Predictor, extractor: FeatureExtractor):
        self._predictor, self._extractor = predictor, extractor

    def check(self, example: Text) -> None:
        self._extractor.row(example)

    def run(self, examples: Sequence[Text]) -> list[np.ndarray]:
        """float32[features] of each text."""
        found = self._extractor.run(map(self._extractor.row, examples))
        return [features["embeddings"] for _, features in found]

    def shapes(self, example: Text) -> Iterator[tuple[int, int]]:
        lengths = np.array([len(self._extractor.row(example).input_ids)])
        return self._predictor.shapes(lengths, True)


class Attention:
    """The page of a text's attention."""

    def __init__(self, reader: AttentionReader, name: str, about: str):
        """Args:
        reader: of the model.
        name: of the workdir.
        about: the model in a few words.
        """
        self._reader, self._name, self._about = reader, name, about

    def check(self, example: Text) -> None:
        config = self._reader.config
        row = self._reader.encode(example)
        if len(row.word_positions) < 1:
            raise UserError(f"{example.where} has no words.")
        check_size(config.num_layers, config.num_heads, len(row.input_ids))

    def run(self, examples: Sequence[Text]) -> list[str]:
        """The page of each text or pair."""
        return list(map(self._page, examples))

    def shapes(self, example: Text) -> Iterator[tuple[int, int]]:
        yield self._reader.length(self._reader.encode(example)), 1

    def _page(self, example: Text) -> str:
        texts = [example.text_a, *([] if example.text_b is None else [example.text_b])]
        arrays = self._reader.read(self._reader.encode(example))
        origin = Origin(self._name, self._about, tuple(texts), "", self._reader.no_lens)
        return attention_page(origin, arrays)


class Generation:
    """Texts that are continued by the most probable words, as `generate --greedy`."""

    def __init__(self, generator: Generator):
        self._generator = generator
        longest = generator.encoder.max_position_embeddings - NEW_TOKENS
        self._lengths = bucket_lengths(GENERAL_LENGTHS, longest)

    def check(self, example: Text) -> None:
        """A text has one token less than it may have, for the one that texts begin with."""
        tokens, most = len(self._generator.tokenizer.encode(example.text_a)), self._lengths[-1] - 1
        if tokens > most:
            raise UserError(
                f"{example.where} has {tokens} tokens, and texts of at most {most} are continued:"
                " shorten it."
            )
        self._generator.prompt(example.text_a, NEW_TOKENS)

    def run(self, examples: Sequence[Text]) -> list[str]:
        """Each text with what follows it."""
        return list(map(self._continue, examples))

    def _continue(self, example: Text) -> str:
        prompt = self._generator.prompt(example.text_a, NEW_TOKENS)
        ((_, new),) = self._generator.generate(
            [prompt],
            Sampling(greedy=True),
            max_new_tokens=NEW_TOKENS,
            length=self._length(prompt),
        )
        return self._generator.text(prompt, new)

    def _length(self, prompt: Prompt) -> int:
        return next(length for length in self._lengths if length >= len(prompt.ids))

    def shapes(self, example: Text) -> Iterator[tuple[int, int]]:
        yield self._length(self._generator.prompt(example.text_a, NEW_TOKENS)), 1


def similarities(vectors: Sequence[np.ndarray]) -> dict[str, Any]:
    """Returns the cosine of the vectors of each pair of texts, [texts][texts]."""
    lengths = [max(float(np.linalg.norm(vector)), 1e-12) for vector in vectors]
    units = np.stack([v / length for v, length in zip(vectors, lengths, strict=True)])
    return {"similarity": np.clip(units @ units.T, -1, 1).tolist()}


def describe_model(config: RunConfig) -> str:
    """Returns "bert for pretraining: 12 layers, hidden size 768"."""
    model = config.model
    return (
        f"{model.name} for {config.task}: {model.num_layers} layers, hidden size"
        f" {model.hidden_size}"
    )
