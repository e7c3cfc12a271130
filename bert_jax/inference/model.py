"""A trained model as an object: text in, vectors, predictions and new text out."""

import dataclasses
import functools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config.encoder_fields import EncoderConfig
from bert_jax.data.in_memory import is_table, read_examples
from bert_jax.data.labelled.texts import EncodedTexts, Text, TextRow, read_texts
from bert_jax.devices.trees import described, diff_of_trees
from bert_jax.exchange import export
from bert_jax.files.errors import UserError, python_spelling
from bert_jax.inference.attention import AttentionReader
from bert_jax.inference.examples import make_examples
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.generation import Generator, Sampling
from bert_jax.inference.loading import TrainedModel, load_model
from bert_jax.inference.long_texts import truncate as truncate_row
from bert_jax.inference.onnx_export import export_onnx
from bert_jax.inference.predictor import UNEXPECTED_PAIRS, Predictor, TaskPredictor
from bert_jax.inference.scoring import Scorer, check_fills_masks
from bert_jax.inference.sparse import stack_sparse
from bert_jax.models import make_encoder
from bert_jax.tasks.task import Task
from bert_jax.training.metrics import history

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_LOGGER = logging.getLogger(__name__)
_LINES_SHOWN = 4
# A text; a pair of texts; or a dict with text_a and, for a pair, text_b.
TextInput = str | tuple[str, str] | Mapping[str, str]
Form = Literal["huggingface", "onnx", "stablehlo"]
Pooling = Literal["", "cls", "mean", "max"]
Long = Literal["error", "truncate", "windows"]
Dtype = Literal["float32", "bfloat16", "bfloat16_products"]
# Texts, or a table with a column of them (`in_memory.is_table`).
Texts = Iterable[TextInput] | Any


@python_spelling()
def load(
    path: str | os.PathLike[str], dtype: Dtype | None = None, exact: bool = False, **values: Any
) -> "Model":
    """Returns a trained model, on the devices.

    Args:
      path: a workdir; or a folder of Hugging Face, google-research/bert, bilm-tf or
        openai/finetune-transformer-lm, which needs no conversion.
      dtype: "float32", "bfloat16" or "bfloat16_products" to compute in; None: that of the run,
        and for sentence vectors a faster one with nearly the same results
        (`feature_choice.Choice`).
      exact: whether all results of a text are bitwise identical in any batch and order, as with
        `Model.encode(exact=True)`.
      values: fields that override the run's configuration, with "__" in place of dots, such as
        `task__long_texts="windows"`, `task__subwords="mean"`.

    Raises:
      UserError: there is no model, it is corrupt, or it does not have such a field.

    >>> model = bert_jax.load("runs/mine", dtype="float32")
    """
    fields = {"dtype": dtype} if dtype else {}
    fields |= {name.replace("__", "."): value for name, value in values.items()}
    loaded = load_model(os.fspath(path), lambda config: config.replace(fields), exact)
    return Model(**vars(loaded), choices={"dtype": dtype, "exact": exact, **values})


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Model(TrainedModel):
    """A trained model: an encoder, the heads that were trained with it, and its tokenizer.

    Inputs are texts, in any iterable, and results are in the same order. A text may also be a pair,
    `(text_a, text_b)`, or a dict with `text_a` and `text_b`; and the texts may be a table (pandas,
    polars, pyarrow, Hugging Face `datasets`), which is read like a file with its rows.
    Nothing is truncated silently: a text that is too long for the model is an error, except where
    its task truncates (`predict`) or `long="truncate"` is given: a logged warning then counts what
    is cut off.

    Its `config`, `tokenizer` and `params` are those of `TrainedModel`.

    Attributes:
      choices: the arguments of `load`, except the path.
      is_changed: whether the parameters come from `with_params` instead of the folder.
    """

    choices: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_changed: bool = False

    def __repr__(self) -> str:
        sizes = f"{self.encoder.num_layers} layers, hidden {self.encoder.hidden_size}"
        name = f"{self.encoder.name} for {self.task.title}"
        return f"<{name}: {sizes}, {self.folder}, step {self.step}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the folder, the arguments of `load`, and parameters that the folder lacks."""
        params = jax.device_get(self.params) if self.is_changed else None
        return _restore, (self.folder, self.choices, params)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Model":
        """Returns the model itself, which is immutable, with its compiled functions."""
        return self

    def with_params(self, params: Any) -> "Model":
        """Returns the model with other parameters, such as those of a training loop of your own.

        Args:
          params: a tree with the paths, shapes and dtypes of `params`.

        Raises:
          UserError: the tree has other paths, shapes or dtypes.

        >>> model.with_params(params).export("huggingface", "exported")
        """
        if lines := diff_of_trees(described(self.params), described(params)):
            raise UserError(
                "params are not those of the model (- of the model, + given):"
                f" {'; '.join(lines[:_LINES_SHOWN])}."
            )
        # Copies, so that later writes to a numpy array do not change the model.
        params = jax.tree.map(lambda x: jnp.array(x) if isinstance(x, np.ndarray) else x, params)
        return dataclasses.replace(self, params=params, is_changed=True)

    @property
    def module(self) -> nn.Module:
        """The linen module of the encoder.

        `module.apply({"params": model.params}, batch)` returns the last hidden states,
        float[batch, seq, hidden].
        """
        return HiddenStates(self.encoder)

    @property
    def task_module(self) -> nn.Module:
        """The linen module of encoder and head; with `params` it returns the task's outputs."""
        return self.task.bind(self.encoder, self.tokenizer).make_model()

    @functools.cached_property
    def _exact(self) -> "Model":
        """The same model, with bitwise identical results for a text in any batch."""
        choices = {**self.choices, "exact": True}
        return self if self.exact else dataclasses.replace(self, exact=True, choices=choices)

    @functools.cached_property
    def _reader(self) -> Callable[..., Any]:
        """(class, settings) -> a reader of texts; cached, so that settings are compiled once."""
        predictor = Predictor(self)
        return functools.lru_cache(lambda kind, *settings: kind(predictor, *settings))

    @functools.cached_property
    def history(self) -> dict[str, np.ndarray]:
        """The metrics of the training as arrays, float64[reports] by name; `step` is int64.

        `history["loss"]` belongs to `history["step"]`. Names of metrics on held-out rows begin with
        "validation_": `history["validation_loss"]` belongs to `history["validation_step"]`.
        """
        splits = history(self.folder)
        return splits.get("train", {}) | {
            f"validation_{name}": array for name, array in splits.get("validation", {}).items()
        }

    @python_spelling()
    def batch(
        self, texts: Texts, length: int = 0, rows: int = 1, truncate: bool = False
    ) -> dict[str, jax.Array]:
        """Returns a batch for `module`, with one text in each row, on the devices.

        Args:
          texts: texts or pairs.
          length: tokens per row, padding included; 0: the length of the longest text. With a fixed
            length and number of rows, a jitted function compiles once.
          rows: the number of rows is a multiple of this; padding rows, whose `example_ids` are 0,
            follow the texts.
          truncate: whether the last tokens of texts that are too long are cut off, and counted in a
            logged warning; otherwise such a text is an error.

        Returns:
          int32[batch, seq] `input_ids`, `token_type_ids`, `position_ids`, `example_ids` (1; 0 for
          padding), and int32[batch, 1] `cls_positions`. Add `[:, ...]` of your own where a head
          needs more.

        Raises:
          UserError: a text has more tokens than `length`, or than the model takes.
        """
        if rows < 1:
            raise UserError(f"rows={rows} must be at least 1.")
        extractor = self._reader(FeatureExtractor, Choice(long="windows" if truncate else "error"))
        found = list(map(extractor.row, _read_texts(texts)))
        if not found:
            raise UserError("There are no texts: a batch has at least one row.")
        if truncate:
            room = min(length or extractor.max_length, extractor.max_length)
            found = [truncate_row(row, room) for row in found]
            _warn(_count_cuts(found))
        encoded = EncodedTexts(found, self.tokenizer)
        longest = int(encoded.lengths.max(initial=1))
        if length > extractor.max_length:
            raise UserError(f"length={length}: the model takes {extractor.max_length} tokens.")
        if longest > (length or longest):
            raise UserError(
                f"length={length}: the longest text has {longest} tokens, special ones included;"
                " give that, or truncate=True."
            )
        numbers = np.arange(-(-len(encoded.rows) // rows) * rows)
        numbers[len(encoded.rows) :] = -1
        batch = encoded.take(numbers[:, None], length or longest)
        return jax.device_put(self.add_fields(batch))

    @python_spelling()
    def encode(
        self,
        texts: Texts,
        pooling: Pooling = "",
        layer: int = -1,
        normalize: bool | None = None,
        long: Long = "error",
        stride: int = 0,
        prompt: str = "",
        dimensions: int = 0,
        exact: bool = False,
    ) -> np.ndarray:
        """Returns a vector for each text, float32[texts, hidden], or [texts, dimensions].

        Args:
          texts: texts or pairs.
          pooling: "mean" or "max" over the tokens, or "cls": the first one. "": as modules.json of
            sentence-transformers says, if the model has one, else the mean.
          layer: number of the layer, 0 the embeddings' output, -1 the last one.
          normalize: whether vectors are scaled to length 1; None: as modules.json says, else not.
          long: how texts that are too long are handled: "error", "truncate" (cuts off the last
            tokens), or "windows" (overlapping windows, from which each token is taken once).
          stride: tokens from the start of a window to that of the next one; 0: half of a window.
          prompt: a text before each text, such as "query: ", or the name of one of the model's
            prompts; "": the model's default prompt, if it has one.
          dimensions: number of leading dimensions to keep, before vectors are scaled; 0: all.
          exact: whether the vector of a text is bitwise identical alone, in any batch, in any order
            and after a restart on the same kind of machine. Texts then share no rows, which is
            slower for short ones, and most of all for a single one.

        >>> vectors = model.encode(["A cat.", "A dog."], normalize=True)
        >>> similarity = vectors @ vectors.T
        """
        pooled = {"level": "sentence", "pooling": pooling, "normalize": normalize}
        read = {"long": long, "stride": stride, "prompt": prompt, "dimensions": dimensions}
        model = self._exact if exact else self
        found = model._extract(texts, layers=layer, **pooled, **read)[1]
        vectors = [features["embeddings"] for _, features in found]
        size = dimensions or self.encoder.hidden_size
        return np.stack(vectors) if vectors else np.empty((0, size), np.float32)

    @python_spelling()
    def encode_sparse(
        self, texts: Texts, long: Literal["error", "truncate"] = "error", prompt: str = ""
    ) -> "csr_array":
        """Returns the weight of each word of the vocabulary for each text; most weights are 0.

        The weight of a word is the maximum of log(1 + relu(logit)) over the tokens (SPLADE), with
        the logits of the masked-LM head. Texts are compared by the dot product of their vectors.

        Args:
          texts, long, prompt: see `encode`; `long` is "error" or "truncate".

        Returns:
          A scipy.sparse.csr_array, float32[texts, vocab_size]; `tokenizer.pieces` names the words.

        Raises:
          UserError: the model has no trained masked-LM head.

        >>> vectors = model.encode_sparse(["A cat.", "A dog."])
        >>> similarity = (vectors @ vectors.T).toarray()
        """
        _, found = self._extract(texts, level="sentence", sparse=True, long=long, prompt=prompt)
        vectors = (features["embeddings"] for _, features in found)
        return stack_sparse(vectors, self.encoder.vocab_size)

    @python_spelling()
    def encode_multi(
        self, texts: Texts, long: Literal["error", "truncate"] = "error", prompt: str = ""
    ) -> list[np.ndarray]:
        """Returns a unit vector for each token, float32[tokens, features] for each text.

        A query is compared with a document by MaxSim (ColBERT): the sum, over the tokens of the
        query, of the largest dot product with a token of the document.

        Args:
          texts, long, prompt: see `encode`; `long` is "error" or "truncate".

        Raises:
          UserError: the model was not trained with task="colbert".

        >>> query, document = model.encode_multi(["A cat?", "A cat sat."])
        >>> similarity = (query @ document.T).max(axis=1).sum()
        """
        read = {"long": long, "prompt": prompt}
        found = self._extract(texts, level="subword", multi=True, **read)[1]
        return [features["hidden_states"][0] for _, features in found]

    @python_spelling()
    def hidden_states(
        self, texts: Texts, layers: str | int = "last", **choice: Any
    ) -> list[dict[str, Any]]:
        """Returns what the command `encode` writes for each text, with arrays instead of lists.

        Args:
          texts: texts or pairs.
          layers: "last", "second_to_last", "concat_last_4", "sum_last_4", "weighted_sum", "all",
            "directions" (ELMo), or the number of a layer.
          choice: further fields of `feature_choice.Choice`: `level` ("subword", "word",
            "sentence"), `word`, `pooling`, `normalize`, `weights`, `long`, `stride`, `prompt`,
            `dimensions`.

        Returns:
          For each text `hidden_states` float32[layers, tokens or words, features] (or `embeddings`
          float32[features] for sentences), `tokens` or `words`, `input_ids`, and more.
        """
        extractor, found = self._extract(texts, layers=layers, **choice)
        return [extractor.names(row, features) | features for row, features in found]

    def _extract(self, texts: Texts, **choice: Any) -> tuple[FeatureExtractor, Any]:
        settings = Choice(**choice, keeps_dtype=bool(self.choices.get("dtype")))
        extractor = self._reader(FeatureExtractor, settings)
        rows = map(extractor.row, _read_texts(texts))
        return extractor, _warn_of_cuts(extractor.run(rows))

    @python_spelling()
    def fill_mask(self, texts: Texts, top_k: int = 5) -> list[list[list[dict[str, Any]]]]:
        """Returns the most probable tokens for each "[MASK]" of each text.

        Returns:
          For each text, a list for each mask of `top_k` dicts
          `{"token": "mat", "probability": 0.41}`.

        Raises:
          UserError: the model has no trained masked-LM head, or a text has no [MASK].
        """
        check_fills_masks(self)
        predictions = self._predict(list(_read_texts(texts)), top_k)
        return [[mask["candidates"] for mask in found["masks"]] for found in predictions]

    @python_spelling()
    def predict(
        self, examples: Iterable[Any], top_k: int = 5, exact: bool = False
    ) -> list[dict[str, Any]]:
        """Returns the task's prediction for each example, as the command `predict` writes it.

        Args:
          examples: texts or pairs; for a tagger texts or lists of words; for questions
            `(question, context)`; for multiple choice `(context, endings)`; or dicts, whose keys
            may be the columns that the model was trained on, as those of a table are.
          top_k: candidates for each mask, if the model fills in masks.
          exact: whether results are bitwise identical in any batch; see `encode`.

        >>> model.predict(["A wonderful film."])
        [{'id': '0', 'label': 'good', 'probabilities': {'bad': 0.1, 'good': 0.9}}]
        """
        if exact and not self.exact:
            return self._exact.predict(examples, top_k)
        kind = self.task.EXAMPLE
        if kind is None:
            raise UserError(
                f"config.task.name={self.config.task.name!r} has no predictions for examples: its"
                " vectors are those of encode, encode_sparse or encode_multi."
            )
        if is_table(examples):
            read = functools.partial(self.task.read, counts=Counter(), labelled=False)
            return self._predict(read_examples(examples, "examples", read), top_k)
        by_character = not self.task.between_words
        columns = self.task.column_inputs
        made = make_examples(kind, examples, by_character, columns=columns)
        return self._predict(list(made), top_k)

    @python_spelling()
    def rank(self, query: str, documents: Texts, top_k: int | None = None) -> list[dict[str, Any]]:
        """Returns the documents that best answer a query, ranked by a cross-encoder.

        The score is the number that a regression predicts for (query, document), or the probability
        of the second of two classes.

        Args:
          query: first text of each pair.
          documents: second texts, or a table with a column of them.
          top_k: number of documents; None: all.

        Returns:
          Dicts of `corpus_id` (the number of the document), `score` and `text`, the best first;
          documents with equal scores keep their order.

        Raises:
          UserError: the model was not trained on pairs with scores or two classes.

        >>> model.rank("What is a list?", ["A mutable sequence.", "A city."], top_k=1)
        [{'corpus_id': 0, 'score': 0.93, 'text': 'A mutable sequence.'}]
        """
        self.check_ranks()
        if not isinstance(query, str):
            raise UserError(f"query={query!r:.60} is not a text: give one query at a time.")
        if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
            raise UserError(f"top_k={top_k} must be a number from 1, or None: all documents.")
        read = [*_read_texts(documents)]
        if pair := next((text for text in read if text.text_b is not None), None):
            raise UserError(f"{pair.where} is a pair: a document is one text.")
        texts = [text.text_a for text in read]
        found = self.predict([(query, text) for text in texts])
        scores = [self.task.relevance(prediction) for prediction in found]
        order = sorted(range(len(texts)), key=lambda number: -scores[number])
        return [
            {"corpus_id": number, "score": scores[number], "text": texts[number]}
            for number in order[:top_k]
        ]

    def check_ranks(self) -> None:
        """Raises UserError if the model does not order texts by how well they answer a query."""
        if type(self.task).relevance is Task.relevance:
            self.task.relevance({})  # raises
        if self.has_training_file and not self.task.reads_pairs:
            raise UserError(
                f"{self.folder} was trained on single texts: only models of pairs rank, such as a"
                " cross-encoder (task='cross_encoder')."
            )

    @python_spelling()
    def score(self, texts: Texts, exact: bool = False) -> list[dict[str, Any]]:
        """Returns the (pseudo-)log-likelihood of each text, as the command `score` writes it.

        Args:
          texts: texts or pairs.
          exact: whether results are bitwise identical in any batch; see `encode`.

        Raises:
          UserError: the model has no trained head that predicts tokens.
        """
        scorer = (self._exact if exact else self)._reader(Scorer)
        return list(scorer.score([scorer.row(text) for text in _read_texts(texts)]))

    @python_spelling()
    def generate(
        self,
        prompts: Sequence[str],
        max_new_tokens: int = 50,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        num_samples: int = 1,
        seed: int = 0,
    ) -> list[str]:
        """Returns each prompt followed by the model's continuation.

        Args:
          prompts: beginnings of texts.
          max_new_tokens: maximum number of tokens after a prompt.
          greedy: whether to take the most probable token instead of sampling.
          temperature: divides the logits.
          top_k: number of the most probable tokens to choose from; 0: all.
          top_p: cumulative probability of the most probable tokens to choose from.
          num_samples: texts for each prompt, which follow each other in the result.
          seed: sampling seed.

        Raises:
          UserError: the model does not predict next tokens.
        """
        generator = Generator(self)
        sampling = Sampling(greedy, temperature, top_k, top_p)
        made = [generator.prompt(prompt, max_new_tokens) for prompt in prompts]
        sizes = {"max_new_tokens": max_new_tokens, "seed": seed, "num_samples": num_samples}
        return [generator.text(*found) for found in generator.generate(made, sampling, **sizes)]

    @python_spelling()
    def attention(self, text: TextInput, top_k: int = 5) -> dict[str, np.ndarray]:
        """Returns the attention of all heads in a text, and what each layer would predict.

        Returns:
          `attention` float32[layers, heads, tokens, tokens], `tokens`, and the other arrays that
          docs/attention.md lists.
        """
        reader = self._reader(AttentionReader, top_k)
        return reader.read(reader.encode(next(make_examples(Text, [text]))))

    @python_spelling()
    def export(self, form: Form, folder: str | os.PathLike[str], **choices: Any) -> dict[str, Any]:
        """Writes the model to a new folder in another program's form, completely or not at all.

        Args:
          form: "huggingface", which transformers loads, "stablehlo", which needs only jax, or
            "onnx", for onnxruntime and others.
          folder: new or empty.
          choices: arguments that "onnx" passes to `onnx_export.export_onnx`: `output` ("task",
            "vectors"), `int8`, `evaluate`, `max_loss`.

        Returns:
          Facts about the export.

        Raises:
          UserError: the folder is not empty, the form cannot express this model, or int8 is worse
            than `max_loss` allows.

        >>> model.export("huggingface", "exported")
        >>> model.export("onnx", "exported-int8", int8=True, evaluate="texts.txt")
        """
        if form == "onnx":
            return export_onnx(self, folder, **choices)
        return export(self.stored(), form, folder, **choices)

    def _predict(self, examples: list[Any], top_k: int) -> list[dict[str, Any]]:
        predictor = self._reader(TaskPredictor, top_k)
        for example in examples:
            predictor.check(example)
        counts = Counter()
        predictions = [found for window in predictor.predict(examples, counts) for found in window]
        ends = "_truncated", "_cut_off", UNEXPECTED_PAIRS
        _warn({name: n for name, n in counts.items() if name.endswith(ends)})
        return predictions


def _restore(folder: str, choices: Mapping[str, Any], params: Any) -> Model:
    """Returns a pickled model."""
    model = load(folder, **choices)
    return model if params is None else model.with_params(params)


def _read_texts(texts: Texts) -> Iterable[Text]:
    """Returns texts and pairs; for a table, those in its text column."""
    if is_table(texts):
        choose = "give one as a list, such as list(table['NAME'])"
        return read_examples(texts, "texts", functools.partial(read_texts, choose=choose))
    return make_examples(Text, texts)


class HiddenStates(nn.Module):
    """An encoder that returns its last hidden states only.

    Attributes:
      config: configuration of the encoder; its `name` is that of the parameters.
    """

    config: EncoderConfig

    @nn.compact
    def __call__(self, batch: Mapping[str, jax.Array], *, deterministic: bool = True) -> jax.Array:
        """Encodes a batch from `Model.batch`, or from another tokenizer.

        Returns float[batch, seq, hidden].

        Raises:
          UserError: see `complete_batch`.
        """
        encoder = make_encoder(self.config, name=self.config.name)
        return encoder(batch, deterministic=deterministic).hidden


def _warn_of_cuts(
    found: Iterable[tuple[TextRow, dict[str, np.ndarray]]],
) -> Iterator[tuple[TextRow, dict[str, np.ndarray]]]:
    """Yields features of texts; then logs how many of their tokens were cut off, if any were."""
    counts = Counter()
    for row, features in found:
        counts += _count_cuts([row])
        yield row, features
    _warn(counts)


def _count_cuts(rows: Iterable[TextRow]) -> Counter:
    cuts = [row.cut for row in rows if row.cut]
    return Counter(texts_truncated=len(cuts), tokens_cut_off=sum(cuts))


def _warn(cuts: Mapping[str, int]) -> None:
    if named := [f"{count:,} {name.replace('_', ' ')}" for name, count in cuts.items() if count]:
        _LOGGER.warning("%s", ", ".join(named))
