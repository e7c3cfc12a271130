"""Initial parameters: copied from another run or program, random, or computed from the text."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from bert_jax.config.run import RunConfig
from bert_jax.data.batch import Rows
from bert_jax.data.corpus.corpus_rows import CorpusRows
from bert_jax.data.spectral import spectral_embeddings
from bert_jax.devices import processes
from bert_jax.devices.sharding import put
from bert_jax.devices.trees import diff_of_trees, flatten, unflatten
from bert_jax.exchange.loaded import (
    LoadedModel,
    encoder_shapes,
    vocabulary_params,
    words_param,
)
from bert_jax.files.errors import UserError
from bert_jax.formats.weight_table import Arrays
from bert_jax.models.model import EncoderConfig
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import load_tokenizer
from bert_jax.training.workdir import open_model

# Heads whose parameters must fit the configuration; any other head of a different size is replaced.
_PRETRAINED_HEADS = ("masked_lm", "next_sentence", "copy_head")
# Parameters with a row for each class -> their class axes.
_CLASS_AXES = {
    "classifier/kernel": (-1,),
    "classifier/bias": (0,),
    "transitions": (0, 1),
    "start_transitions": (0,),
    "end_transitions": (0,),
}
_MAX_DIFFERENCES, _MAX_LABELS = 12, 8


def initial_params(
    init_from: str,
    like: Any,
    make_new: Callable[[Collection[str]], Mapping[str, jax.Array]],
    *,
    encoder: str,
    vocab_size: int,
    layers: Sequence[int] = (),
    reinit: str = "",
    special_tokens: Mapping[int, str] = MappingProxyType({}),
    renew_special_tokens: bool = False,
    extend_positions: str = "",
    tokenizer: Tokenizer | None = None,
    task: str = "",
    labels: Sequence[str] | None = None,
) -> tuple[Any, tuple[str, ...]]:
    """Returns the parameters that a new run starts from.

    Args:
      init_from: a workdir, or a folder of another program.
      like: abstract parameters of the run (shapes, dtypes, shardings).
      make_new: returns random parameters of these paths, for heads that `init_from` lacks.
      encoder: top-level name of the encoder's parameters.
      vocab_size: rows of a table beyond it are padding, and are added as zeros.
      layers: layers of `init_from`, from 1, that become the run's; (): all.
      reinit: regular expression of the paths of parameters that are random although `init_from`
        has them; empty: none.
      special_tokens: result of `special_tokens`. Tables of `init_from` may lack their rows.
      renew_special_tokens: whether their rows are random although `init_from` has them.
      extend_positions: how a table of positions gets more rows: "tile", "interpolate", or "": it
        does not.
      tokenizer: the run's tokenizer, if it has words that `init_from` lacks (`data.extra_tokens`).
        Their rows are the means of the rows of their pieces in `init_from`, in the embedding table
        and in the bias of the head.
      task: the run's `config.task.name`; "": heads are copied if they have the same shape.
      labels: the classes of the run, by number; None: the task has none. See `label_order`.

    Returns:
      The parameters in the shardings of `like`, and lines that describe their origin.

    Raises:
      UserError: `init_from` has no parameters, or they do not fit.
    """
    source = open_model(init_from)
    params = _with_layers(source.trained_params, layers, encoder)
    expected = flatten(like)
    known = 0 if renew_special_tokens else source.config.model.vocab_size
    new_words = {index: token for index, token in special_tokens.items() if index >= known}
    extra = _old_pieces(tokenizer, source.tokenizer) if tokenizer else {}
    _pad_vocabulary(params, expected, encoder, vocab_size, {*new_words, *extra})
    _set_means(params, extra, encoder)
    extended = _extend_positions(params, expected, source.model, extend_positions, init_from)
    head = _fit_head(params, expected, source, task, labels) if task else []
    new = _new_paths(params, expected, encoder, init_from)
    new |= {path for path in expected if reinit and re.search(reinit, path)}
    left_out = sorted({_part(path, encoder) for path in params.keys() - expected.keys()})
    chosen = {path: put(params[path], leaf) for path, leaf in expected.items() if path not in new}
    chosen_layers = f", layers {', '.join(map(str, layers))}" if layers else ""
    lines = [f"from the parameters of {source.source}{chosen_layers}", *head, *extended]
    if new or new_words:
        tables = {*vocabulary_params(encoder)} & chosen.keys() if new_words else set()
        random = make_new(sorted(new | tables))
        for path in tables:
            chosen[path] = _replace_rows(chosen[path], random[path], list(new_words))
        chosen |= {path: random[path] for path in new}
    if new:
        lines.append(f"with new, random ones for {', '.join(sorted(_units(new, encoder)))}")
    if new_words:
        lines.append(f"with new, random embeddings of {', '.join(new_words.values())}")
    if extra:
        lines.append(f"with {len(extra):,} new tokens, each the mean of its old pieces")
    if left_out:
        lines.append(f"without {', '.join(left_out)}")
    return unflatten({path: chosen[path] for path in expected}), tuple(lines)


def spectral_tables(rows: Rows, like: Any, encoder: str) -> tuple[dict[str, jax.Array], int]:
    """Returns the spectral embeddings that `init_state` takes, and `spectral_embeddings`' count.

    All processes call it, and get what the main one computes.

    Args:
      rows: training rows.
      like: abstract parameters of the run (shapes, dtypes, shardings).
      encoder: top-level name of the encoder's parameters.

    Raises:
      UserError: the rows are not from a corpus, or have too few different tokens.
    """
    if not isinstance(rows, CorpusRows):
        raise UserError(
            "config.init_embeddings='spectral' needs a corpus, and this run trains on batches=...:"
            " set config.init_embeddings='random'."
        )
    path = words_param(encoder)
    leaf = flatten(like)[path]
    found, problem = (np.zeros(leaf.shape, np.float32), 0), ""
    if processes.is_main():
        try:
            found = spectral_embeddings(rows, *leaf.shape)
        except UserError as error:
            problem = str(error)
    processes.raise_together(problem)
    table, pairs = multihost_utils.broadcast_one_to_all(found)
    return {path: put(np.asarray(table), leaf)}, int(pairs)


def label_order(source: Sequence[str], labels: Sequence[str]) -> list[int] | None:
    """Returns the row of each label in a head whose rows are `source`; None: the sets differ."""
    if sorted(source) != sorted(labels) or len(set(labels)) < len(labels):
        return None
    return [list(source).index(label) for label in labels]


def check_source(config: RunConfig) -> None:
    """Compares the encoder in config.init_from with the configuration.

    It takes only seconds, and refuses parameters that do not fit before data are prepared.

    Raises:
      UserError: as `initial_params`.
    """
    model = config.model
    source = open_model(config.init_from)
    expected = encoder_shapes(model)
    params = {p: x for p, x in source.params.items() if _part(p, model.name) == model.name}
    params = _with_layers(params, config.init_layers, model.name)
    new_words: Collection[int] = ()
    if source.config.model.vocab_size < model.vocab_size and config.data.vocab:
        tokenizer = load_tokenizer(config.data.vocab, config.data.lowercase)
        new_words = special_tokens(tokenizer)
        if config.get("data.extra_tokens"):
            new_words = range(len(tokenizer.pieces), model.vocab_size)
    _pad_vocabulary(params, expected, model.name, model.vocab_size, new_words)
    _extend_positions(params, expected, source.model, config.extend_positions, config.init_from)
    _new_paths(params, expected, model.name, config.init_from)


def special_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    """Returns the tokens that rows contain in addition to text, by id."""
    ids = (tokenizer.cls_id, tokenizer.sep_id, tokenizer.end_id)
    return {index: tokenizer.pieces[index] for index in ids}


# ------------------------------------------------------------------ what fits


def _with_layers(params: Arrays, layers: Sequence[int], encoder: str) -> Arrays:
    """Returns parameters whose layers 0, 1, ... are some of those given; (): all, unchanged."""
    if not layers:
        return params
    found = {}
    for path, array in params.items():
        if match := re.match(rf"{encoder}/encoder/layer_(\d+)/(.*)", path):
            for new, layer in enumerate(layers):
                if int(match[1]) == layer - 1:
                    found[f"{encoder}/encoder/layer_{new}/{match[2]}"] = array
        else:
            found[path] = array
    return found


def _fit_head(
    params: Arrays,
    expected: dict[str, Any],
    source: LoadedModel,
    task: str,
    labels: Sequence[str] | None,
) -> list[str]:
    """Puts the head's class rows in the order of the run's labels, or removes the head.

    Returns:
      A line that says so; none if the head has the rows that the run needs, or there is no head.
    """
    paths = [path for path in params if path in _CLASS_AXES]
    if labels is None or not paths or "classifier/bias" not in expected:
        return []
    is_same_task = source.config.task.name == task
    order = label_order(source.labels, labels) if is_same_task else None
    if order is None:
        for path in paths:
            del params[path]
        return [
            f"its head, whose labels are {_shown(source.labels)}, is not used"
            if is_same_task
            else f"its head for the task {source.config.task.name!r} is not used"
        ]
    if order == list(range(len(order))):
        return []
    for path in paths:
        for axis in _CLASS_AXES[path]:
            params[path] = np.take(params[path], order, axis)
    return [f"its head's rows in the order of the labels (there: {_shown(source.labels)})"]


def _shown(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - _MAX_LABELS} more" if len(labels) > _MAX_LABELS else ""
    return (", ".join(labels[:_MAX_LABELS]) or "no names") + more


def _pad_vocabulary(
    params: Arrays,
    expected: dict[str, Any],
    encoder: str,
    vocab_size: int,
    new_words: Collection[int],
) -> None:
    """Adds rows of zeros to tables that have all words except new ones at the end."""
    min_size = vocab_size
    while min_size - 1 in new_words:
        min_size -= 1
    for path in vocabulary_params(encoder):
        if path in params and path in expected and min_size <= len(params[path]) <= vocab_size:
            array = params[path]
            padding = expected[path].shape[0] - len(array)
            params[path] = np.pad(array, [(0, padding)] + [(0, 0)] * (array.ndim - 1))


def extended_positions(table: np.ndarray, rows: int, how: str) -> np.ndarray:
    """Returns a table of learned positions with more rows.

    Args:
      table: float32[positions, hidden].
      rows: rows of the result.
      how: "tile": row i is row i % positions of the table (Beltagy et al. 2020, arXiv 2004.05150,
        section 5). "interpolate": the table is stretched: its first and last rows stay first and
        last, and the others are linear interpolations of two of its rows.
    """
    if how == "tile":
        return table[np.arange(rows) % len(table)]
    places = np.arange(rows) * ((len(table) - 1) / (rows - 1))
    left = np.minimum(places.astype(int), len(table) - 2)
    share = (places - left)[:, None]
    return ((1 - share) * table[left] + share * table[left + 1]).astype(table.dtype)


def _extend_positions(
    params: Arrays, expected: dict[str, Any], model: EncoderConfig, how: str, folder: str
) -> list[str]:
    """Extends the table of learned positions of the source; returns a line if it does.

    Raises:
      UserError: it needs more rows, and `how` is empty.
    """
    path, offset = f"{model.name}/embeddings/position_embeddings/embedding", model.position_offset
    if path not in params or path not in expected:
        return []
    rows, have = (size - offset for size in (expected[path].shape[0], len(params[path])))
    if rows <= have:
        return []
    if not how:
        raise UserError(
            f"config.model.max_position_embeddings={rows} is above the {have} learned positions of"
            f" config.init_from={folder}: set --config.extend_positions=tile (the new rows repeat"
            " the table) or interpolate (the table is stretched), or leave the field out."
        )
    before, table = params[path][:offset], params[path][offset:]
    params[path] = np.concatenate([before, extended_positions(table, rows, how)])
    what = "repeated" if how == "tile" else "interpolated"
    return [f"with {have} positions {what} to {rows}"]


def _old_pieces(tokenizer: Tokenizer, old: Tokenizer) -> dict[int, list[int]]:
    """Returns, for each word that `old` lacks, its id -> the ids of its pieces in `old`."""
    new = range(len(old.pieces), len(tokenizer.pieces))
    return {index: old.encode(tokenizer.pieces[index]) for index in new}


def _set_means(params: Arrays, pieces: Mapping[int, Sequence[int]], encoder: str) -> None:
    """Replaces rows by the means of other rows, in all parameters with a row for each word."""
    for path in vocabulary_params(encoder):
        if path in params and pieces:
            means = [params[path][ids].mean(axis=0) for ids in map(list, pieces.values())]
            params[path] = np.array(params[path])
            params[path][list(pieces)] = means


def _replace_rows(table: jax.Array, new: jax.Array, rows: Sequence[int]) -> jax.Array:
    """Returns `table` with some rows of `new`, in the same sharding."""
    is_new = np.isin(np.arange(len(table)), rows).reshape(-1, *[1] * (table.ndim - 1))

    def replace(table: jax.Array, new: jax.Array) -> jax.Array:
        return jnp.where(is_new, new, table)

    return jax.jit(replace, out_shardings=table.sharding)(table, new)


def _new_paths(
    params: Arrays, expected: dict[str, Any], encoder: str, folder: str
) -> frozenset[str]:
    """Returns the paths of parameters that need new values: those of missing heads.

    Raises:
      UserError: other parameters are missing, unexpected or of another shape.
    """
    have = {path: f"{list(array.shape)}" for path, array in params.items()}
    want = {path: f"{list(leaf.shape)}" for path, leaf in expected.items()}
    have_parts = {_part(path, encoder) for path in have}
    want_parts = {_part(path, encoder) for path in want}
    # The head of another task, or of other classes, is not used.
    must_fit = {encoder, f"{encoder}/pooler", *_PRETRAINED_HEADS}
    differ = (path for path in have.keys() & want.keys() if have[path] != want[path])
    have_parts -= {_part(path, encoder) for path in differ} - must_fit
    new = {p for p in want if _part(p, encoder) not in have_parts and _part(p, encoder) != encoder}
    unused = {p for p in have if _part(p, encoder) not in want_parts}
    unused = {p for p in unused if _part(p, encoder) != encoder}
    unused |= {p for p in have if _part(p, encoder) not in have_parts}
    for path in new | unused:
        have.pop(path, None)
        want.pop(path, None)
    if lines := diff_of_trees(have, want):
        more = len(lines) - _MAX_DIFFERENCES
        raise UserError(
            f"The parameters of config.init_from={folder} do not fit the configuration (- in"
            f" config.init_from, + expected): {'; '.join(lines[:_MAX_DIFFERENCES])}"
            f"{f'; and {more} more' if more > 0 else ''}."
        )
    return frozenset(new)


def _part(path: str, encoder: str) -> str:
    """Returns what is present or missing as a whole: the encoder, its pooler, or a head."""
    pooler = f"{encoder}/pooler"
    return pooler if path.startswith(f"{pooler}/") else path.split("/")[0]


def _units(paths: Any, encoder: str) -> set[str]:
    """Returns the names for a list of parameters: layers of the encoder, its pooler, heads."""
    layers = ((path, re.match(rf"{encoder}/\w+/layer_\d+", path)) for path in paths)
    return {match[0] if match else _part(path, encoder) for path, match in layers}
