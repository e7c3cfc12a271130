"""The Python API: load a model and use it; train, fine-tune and prepare data.

    >>> import bert_jax
    >>> model = bert_jax.train(bert_jax.get_config("fast:tiny", steps=500), "runs/mine")
    >>> model.encode(["A cat sat on the mat."]).shape
    (1, 128)

Settings go through the same presets, `init_from` and checks as on the command line, and results are
those of the commands, bit for bit. docs/python.md is the guide.
"""

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax.config import experiments, store
from bert_jax.config.data import data_config
from bert_jax.config.fields import fields, has_corpus
from bert_jax.data import init_from
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.data.corpus.prepare import prepare as prepare_corpus
from bert_jax.data.labelled.texts import EncodedTexts, Text
from bert_jax.exchange.export import export
from bert_jax.files.atomic import read_json
from bert_jax.files.buckets import local
from bert_jax.files.errors import UserError
from bert_jax.formats import format_of
from bert_jax.inference.attention import AttentionReader
from bert_jax.inference.examples import make_examples
from bert_jax.inference.feature_choice import Choice
from bert_jax.inference.features import FeatureExtractor
from bert_jax.inference.generation import Generator
from bert_jax.inference.loading import TrainedModel, load_foreign, load_workdir
from bert_jax.inference.predictor import Predictor, TaskPredictor
from bert_jax.inference.sampling import Sampling
from bert_jax.inference.scoring import check_fills_masks, make_scorer
from bert_jax.models import make_encoder
from bert_jax.models.model import EncoderConfig
from bert_jax.text.tokenization import Tokenizer
from bert_jax.training import train as training
from bert_jax.training.metrics import read_metrics
from bert_jax.training.seeds import train_seeds
from bert_jax.training.workdir import open_model

# A text; a pair of texts; or a dict with text_a and, for a pair, text_b.
TextInput = str | tuple[str, str] | Mapping[str, str]
# (outputs of the task's model, batch) -> Sum of the loss.
Loss = Callable[[Any, Mapping[str, jax.Array]], Any]

# Configuration files of `finetune`, by task.
_CONFIGS = ("classification", "tagging", "span", "multiple_choice")
# The configuration of `get_config` -> its values, from which those that the user set differ.
_FILE_VALUES = "_file_values"


# ------------------------------------------------------------------ using models


def load(path: str | os.PathLike, dtype: str | None = None) -> "Model":
    """Returns a trained model, on the devices.

    Args:
      path: a workdir; or a folder of Hugging Face, google-research/bert, bilm-tf or
        openai/finetune-transformer-lm, which needs no conversion.
      dtype: "float32", "bfloat16" or "bfloat16_products" to compute in; None: that of the run.

    Raises:
      UserError: there is no model, or it is corrupt.

    >>> model = bert_jax.load("runs/mine", dtype="float32")
    """
    folder = local(os.fspath(path))
    if format_of(folder) != "workdir":
        return Model(load_foreign(folder, dtype))
    config = store.load(folder)
    config.dtype = dtype or config.dtype
    return Model(load_workdir(config, folder))


class Model:
    """A trained model: an encoder, the heads that were trained with it, and its tokenizer.

    Inputs are lists of texts, and results come in their order. A text may also be a pair,
    `(text_a, text_b)`, or a dict with `text_a` and `text_b`. Nothing is truncated silently: a text
    that is too long for the model is an error, except where its task truncates (`predict`).

    Attributes:
      config: configuration of the run.
      tokenizer: text -> ids and back.
      params: all parameters by name, a tree of arrays.
      module: linen module of the encoder; `module.apply({"params": model.params}, batch)` returns
        the last hidden states, float[batch, seq, hidden].
    """

    def __init__(self, loaded: TrainedModel):
        self._loaded = loaded
        self._predictor = Predictor(loaded)
        self.config: ConfigDict = loaded.config
        self.tokenizer: Tokenizer = loaded.tokenizer
        self.params: Any = loaded.params
        self.module: nn.Module = HiddenStates(loaded.encoder)

    @property
    def folder(self) -> str:
        """The folder that the model was loaded from."""
        return self._loaded.folder

    @property
    def task_module(self) -> nn.Module:
        """The linen module of encoder and head; with `params` it returns the task's outputs."""
        loaded = self._loaded
        return loaded.data.make_task(loaded.encoder, loaded.tokenizer).make_model()

    @functools.cached_property
    def history(self) -> dict[str, np.ndarray]:
        """The metrics of the training: float64[reports] by name, and `step`, int64[reports].

        Metrics of evaluations begin with "validation_"; so does their `validation_step`.
        """
        return read_history(self.folder)

    def batch(self, texts: Sequence[TextInput]) -> dict[str, jax.Array]:
        """Returns texts as a batch for `module`, one in each row, on the devices.

        The fields are int32[texts, seq] `input_ids`, `token_type_ids`, `position_ids`,
        `example_ids` (1, 0: padding), and int32[texts, 1] `cls_positions`. Add `[:, ...]` of your
        own where a head needs more.
        """
        encode = self._features(Choice()).row
        rows = EncodedTexts([encode(text) for text in _texts(texts)], self.tokenizer)
        numbers = np.arange(len(rows.rows))[:, None]
        batch = rows.take(numbers, int(rows.lengths.max()))
        return jax.device_put(self._loaded.add_fields(batch))

    def encode(
        self,
        texts: Sequence[TextInput],
        pooling: str = "mean",
        layer: int = -1,
        normalize: bool = False,
    ) -> np.ndarray:
        """Returns a vector for each text, float32[texts, hidden].

        Args:
          texts: texts or pairs.
          pooling: "mean" or "max" over the tokens, or "cls": the first one.
          layer: number of the layer, 0 the embeddings' output, -1 the last one.
          normalize: whether vectors are scaled to length 1.

        >>> vectors = model.encode(["A cat.", "A dog."], normalize=True)
        >>> similarity = vectors @ vectors.T
        """
        choice = Choice(layers=layer, level="sentence", pooling=pooling, normalize=normalize)
        extractor = self._features(choice)
        found = extractor.run(map(extractor.row, _texts(texts)))
        vectors = [features["embeddings"] for _, features in found]
        size = self._loaded.encoder.hidden_size
        return np.stack(vectors) if vectors else np.empty((0, size), np.float32)

    def hidden_states(
        self, texts: Sequence[TextInput], layers: str | int = "last", **choice: Any
    ) -> list[dict[str, Any]]:
        """Returns what the command `features` writes for each text, with arrays instead of lists.

        Args:
          texts: texts or pairs.
          layers: "last", "second_to_last", "concat_last_4", "sum_last_4", "weighted_sum", "all",
            "directions" (ELMo), or the number of a layer.
          choice: further fields of `feature_choice.Choice`: `level` ("subword", "word",
            "sentence"), `word`, `pooling`, `normalize`, `weights`.

        Returns:
          For each text `hidden_states` float32[layers, tokens or words, features] (or `embeddings`
          float32[features] for sentences), `tokens` or `words`, `input_ids`, and more.
        """
        extractor = self._features(Choice(layers=layers, **choice))
        found = extractor.run(map(extractor.row, _texts(texts)))
        return [extractor.names(row, features) | features for row, features in found]

    def fill_mask(
        self, texts: Sequence[TextInput], top_k: int = 5
    ) -> list[list[list[dict[str, Any]]]]:
        """Returns the most probable tokens for each "[MASK]" of each text.

        Returns:
          A list for each text, which has a list for each mask, of `top_k` dicts
          `{"token": "mat", "probability": 0.41}`.

        Raises:
          UserError: the model has no trained masked-LM head.
        """
        check_fills_masks(self._loaded)
        predictions = self._predict(list(_texts(texts)), top_k)
        return [[mask["candidates"] for mask in found["masks"]] for found in predictions]

    def predict(self, examples: Sequence[Any], top_k: int = 5) -> list[dict[str, Any]]:
        """Returns the prediction of the model's task for each example, as `predict` writes it.

        Args:
          examples: texts or pairs; for a tagger texts or lists of words; for questions
            `(question, context)`; for multiple choice `(context, endings)`; or dicts.
          top_k: candidates for each mask, if the model fills in masks.

        >>> model.predict(["A wonderful film."])
        [{'id': '0', 'label': 'good', 'probabilities': {'bad': 0.1, 'good': 0.9}}]
        """
        kind = self._loaded.task.example
        if kind is None:
            raise UserError(f"config.task={self.config.task!r} has no predictions for examples.")
        by_character = getattr(self._loaded.data, "by_character", False)
        return self._predict(list(make_examples(kind, examples, by_character)), top_k)

    def score(self, texts: Sequence[TextInput]) -> list[dict[str, Any]]:
        """Returns the (pseudo-)log-likelihood of each text, as the command `score` writes it.

        Raises:
          UserError: the model has no trained head that predicts words.
        """
        scorer = make_scorer(self._predictor)
        return list(scorer.score([scorer.row(text) for text in _texts(texts)]))

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
        """Returns prompts with the text that the model continues them by.

        Args:
          prompts: beginnings of texts.
          max_new_tokens: maximum number of tokens after a prompt.
          greedy: whether to take the most probable token, without chance.
          temperature: divides the logits.
          top_k: number of the most probable tokens to choose from; 0: all.
          top_p: probability in sum of the most probable tokens to choose from.
          num_samples: texts for each prompt, which follow each other in the result.
          seed: sampling seed.

        Raises:
          UserError: the model does not predict next tokens.
        """
        generator = Generator(self._loaded)
        sampling = Sampling(greedy, temperature, top_k, top_p)
        made = [generator.prompt(prompt, max_new_tokens) for prompt in prompts]
        sizes = {"max_new_tokens": max_new_tokens, "seed": seed, "num_samples": num_samples}
        return [generator.text(*found) for found in generator.generate(made, sampling, **sizes)]

    def attention(self, text: TextInput, top_k: int = 5) -> dict[str, np.ndarray]:
        """Returns the attention of all heads in a text, and what each layer would predict.

        Returns:
          `attention` float32[layers, heads, tokens, tokens], `tokens`, and the other arrays that
          docs/attention.md lists.
        """
        reader = AttentionReader(self._predictor, top_k)
        return reader.read(reader.encode(next(_texts([text]))))

    def export(self, form: str, folder: str | os.PathLike) -> dict[str, Any]:
        """Writes the model to a new folder in another program's form, completely or not at all.

        Args:
          form: "huggingface", which transformers loads, or "stablehlo", which needs only jax.
          folder: new or empty.

        Returns:
          Facts about the export.

        Raises:
          UserError: the folder is not empty, or the form cannot express this model.

        >>> model.export("huggingface", "exported")
        """
        return export(open_model(self.folder), form, folder)

    def _predict(self, examples: list[Any], top_k: int) -> list[dict[str, Any]]:
        predictor = TaskPredictor(self._predictor, top_k)
        for example in examples:
            predictor.check(example)
        return [found for window in predictor.predict(examples) for found in window]

    def _features(self, choice: Choice) -> FeatureExtractor:
        return FeatureExtractor(self._predictor, choice)


class HiddenStates(nn.Module):
    """An encoder that returns its last hidden states only.

    Attributes:
      config: configuration of the encoder; its `name` is that of the parameters.
    """

    config: EncoderConfig

    @nn.compact
    def __call__(self, batch: Mapping[str, jax.Array], *, deterministic: bool = True) -> jax.Array:
        """What `Model.batch` returns -> float[batch, seq, hidden]."""
        encoder = make_encoder(self.config, name=self.config.name)
        return encoder(batch, deterministic=deterministic).hidden


def _texts(texts: Sequence[TextInput]) -> Iterable[Any]:
    return make_examples(Text, texts)


def read_history(workdir: str) -> dict[str, np.ndarray]:
    """Returns the metrics of a run; see `Model.history`."""
    history = {}
    for split, prefix in (("train", ""), ("validation", "validation_")):
        rows = [row for row in read_metrics(workdir) if row["split"] == split]
        names = dict.fromkeys(name for row in rows for name in row if name not in _NO_METRICS)
        for name in names:
            values = [np.nan if row.get(name) is None else row[name] for row in rows]
            history[prefix + name] = np.array(values, np.int64 if name == "step" else np.float64)
    return history


_NO_METRICS = ("split", "speed")


# ------------------------------------------------------------------ training models


def get_config(name: str, **values: Any) -> ConfigDict:
    """Returns the configuration of an experiment, as `--config` takes it.

    Args:
      name: a file of configs/ by name, "fast:tiny" for configs/fast.py:tiny; or a path.
      values: fields to set, with "__" in place of dots: `optimizer__learning_rate=1e-4`.

    Raises:
      UserError: there is no such file, or field.

    >>> config = bert_jax.get_config("fast:tiny")
    >>> config.steps = 500
    """
    file, colon, argument = name.partition(":")
    path = file if file.endswith(".py") else f"configs/{file}.py"
    config = experiments.load(f"{path}{colon}{argument}")
    object.__setattr__(config, _FILE_VALUES, dict(fields(config)))
    return set_values(config, values).lock()


def set_values(config: ConfigDict, values: Mapping[str, Any]) -> ConfigDict:
    """Sets fields by name, with "__" in place of dots, and returns the configuration.

    Raises:
      UserError: a field does not exist, or its type is another.
    """
    try:
        config.update_from_flattened_dict({n.replace("__", "."): v for n, v in values.items()})
    except (KeyError, AttributeError, TypeError) as error:
        problem = " ".join(map(str, error.args))
        raise UserError(f"The configuration cannot be used: {problem}") from None
    return config


def train(
    config: ConfigDict,
    workdir: str | os.PathLike,
    losses: Mapping[str, Loss] | None = None,
    listener: Any = None,
) -> Model:
    """Trains a model, or continues a run that was stopped, and returns it.

    Args:
      config: of `get_config`; it is not changed.
      workdir: folder of the run: configuration, data, checkpoints, metrics.
      losses: further losses by name; each is added to the task's own. A loss is a function of the
        outputs of the task's model and the batch, and returns a `Sum`.
      listener: gets lines, progress and metrics; None: one that prints a single updating line.

    Raises:
      UserError: for settings or data that cannot be used.

    >>> model = bert_jax.train(bert_jax.get_config("tiny", steps=100), "runs/tiny")
    >>> model.history["loss"]
    """
    config, workdir = resolve(config, os.fspath(workdir)), os.fspath(workdir)
    run = train_seeds if config.get("seeds", 1) > 1 else training.train
    run(config, workdir)
    if config.get("seeds", 1) > 1:
        best = read_json(os.path.join(workdir, "results.json"))["spread"]["best_seed"]
        workdir = os.path.join(workdir, f"seed-{best}")
    return load(workdir)


def finetune(
    model: Model | str | os.PathLike,
    train: str | os.PathLike,
    evaluate: str | os.PathLike,
    task: str,
    workdir: str | os.PathLike,
    listener: Any = None,
    **values: Any,
) -> Model:
    """Fine-tunes a model on a file of labelled examples, and returns the new one.

    Args:
      model: a model or its folder; a workdir or another program's.
      train: file to train on.
      evaluate: file to evaluate on.
      task: "classification", "tagging", "span" or "multiple_choice"; or a configuration, such as
        "glue:mrpc".
      workdir: folder of the new run.
      listener: see `train`.
      values: fields of the configuration, with "__" in place of dots: `epochs=2.0`,
        `optimizer__learning_rate=3e-5`, `data__text_b="sentence2"`.

    >>> model = bert_jax.finetune("runs/mine", train="train.tsv", evaluate="dev.tsv",
    ...                           task="classification", workdir="runs/reviews")
    """
    folder = model.folder if isinstance(model, Model) else os.fspath(model)
    files = {"data.train": os.fspath(train), "data.eval": os.fspath(evaluate)}
    config = get_config(task)
    if has_corpus(config):
        raise UserError(f"task={task!r} trains on a corpus; give one of {', '.join(_CONFIGS)}.")
    set_values(config, {"init_from": folder} | files | values)
    return _train(config, workdir, None, listener)


def prepare(config: ConfigDict, data_dir: str | os.PathLike) -> Manifest:
    """Makes the vocabulary and training shards of a corpus; training does it if they are missing.

    Args:
      config: of `get_config`.
      data_dir: folder for the data; train with `config.data.dir` set to it.

    >>> bert_jax.prepare(bert_jax.get_config("tiny"), "data/tiny")
    """
    data_dir = os.fspath(data_dir)
    config = resolve(config, "", data_dir)
    if not has_corpus(config):
        raise UserError(f"config.task={config.task!r} has no corpus: there is nothing to prepare.")
    return prepare_corpus(data_config(config), data_dir, config.data.num_processes)


def resolve(config: ConfigDict, workdir: str, data_dir: str = "") -> ConfigDict:
    """Returns a configuration with its preset, `init_from` and all checks applied.

    Fields that differ from the configuration's file were set by the user, and keep their values.
    """
    at_first = getattr(config, _FILE_VALUES, {})
    explicit = [name for name, value in fields(config) if at_first.get(name) != value]
    config = ConfigDict(config.to_dict())
    if workdir:
        store.check_workdir(workdir)
    init_from.complete(config, explicit if at_first else (), workdir, data_dir)
    return config.lock()


_train = train
