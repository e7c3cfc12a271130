"""What each tensor of a BERT is called elsewhere: one table for each format, read in both ways.

Parameters are flat here, "bert/encoder/layer_0/output/kernel" -> float32 array; `flatten` and
`unflatten` lead to the model's tree and back. An import is strict: each foreign tensor is used, or
is known to be no parameter, and each parameter is filled or belongs to a head that the source does
not have. Anything else is an error that lists names and shapes.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Row:
    """One parameter, `{i}` standing for the number of the layer.

    Attributes:
      ours, theirs: its names.
      transform: "same", or "transpose" where the other one stores [out, in] for our [in, out].
    """

    ours: str
    theirs: str
    transform: str = "same"


@dataclasses.dataclass(frozen=True)
class NonParameter:
    """A tensor that checkpoints of a format may hold and that is no parameter of its own.

    Attributes:
      pattern: of its whole name.
      reason: what it is.
      equals: what its values are checked against: "", "arange", "zeros", or the name of the tensor
        that it is a copy of (and stands for, should that one be missing).
    """

    pattern: str
    reason: str
    equals: str = ""


@dataclasses.dataclass(frozen=True)
class Format:
    """How another program stores a BERT.

    Attributes:
      name: of the format, for people.
      rows: the parameters.
      non_parameters: what may stand beside them.
      old_names: (pattern, replacement) that turn names of older versions into those of `rows`.
    """

    name: str
    rows: tuple[Row, ...]
    non_parameters: tuple[NonParameter, ...]
    old_names: tuple[tuple[str, str], ...] = ()

    def todays_name(self, name: str) -> str:
        for pattern, replacement in self.old_names:
            name = re.sub(pattern, replacement, name)
        return name


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of the tensors of a source.

    Attributes:
      used: their name -> ours.
      renamed: name in the source -> today's name, where a tensor had an old one.
      transposed: their names of the tensors that were transposed.
      known_non_parameters: name in the source -> reason.
      cast: name in the source -> dtype, where it was not float32.
      fresh: our names of the parameters that the source does not have.
    """

    used: dict[str, str]
    renamed: dict[str, str]
    transposed: tuple[str, ...]
    known_non_parameters: dict[str, str]
    cast: dict[str, str]
    fresh: tuple[str, ...]


def _dense(ours: str, theirs: str) -> tuple[Row, Row]:
    return (
        Row(f"{ours}/kernel", f"{theirs}.weight", "transpose"),
        Row(f"{ours}/bias", f"{theirs}.bias"),
    )


def _layer_norm(ours: str, theirs: str) -> tuple[Row, Row]:
    return Row(f"{ours}/scale", f"{theirs}.weight"), Row(f"{ours}/bias", f"{theirs}.bias")


_OURS, _THEIRS = "bert/encoder/layer_{i}", "bert.encoder.layer.{i}"

# transformers: BertForPreTraining, BertForMaskedLM, BertModel and the classes for single tasks.
HUGGINGFACE: tuple[Row, ...] = (
    *(
        Row(f"bert/embeddings/{name}/embedding", f"bert.embeddings.{name}.weight")
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")
    ),
    *_layer_norm("bert/embeddings/layer_norm", "bert.embeddings.LayerNorm"),
    *_dense(f"{_OURS}/attention/query", f"{_THEIRS}.attention.self.query"),
    *_dense(f"{_OURS}/attention/key", f"{_THEIRS}.attention.self.key"),
    *_dense(f"{_OURS}/attention/value", f"{_THEIRS}.attention.self.value"),
    *_dense(f"{_OURS}/attention/output", f"{_THEIRS}.attention.output.dense"),
    *_layer_norm(f"{_OURS}/attention/layer_norm", f"{_THEIRS}.attention.output.LayerNorm"),
    *_dense(f"{_OURS}/intermediate", f"{_THEIRS}.intermediate.dense"),
    *_dense(f"{_OURS}/output", f"{_THEIRS}.output.dense"),
    *_layer_norm(f"{_OURS}/layer_norm", f"{_THEIRS}.output.LayerNorm"),
    *_dense("bert/pooler", "bert.pooler.dense"),
    *_dense("masked_lm/transform", "cls.predictions.transform.dense"),
    *_layer_norm("masked_lm/layer_norm", "cls.predictions.transform.LayerNorm"),
    Row("masked_lm/bias", "cls.predictions.bias"),
    *_dense("next_sentence", "cls.seq_relationship"),
    *_dense("classifier", "classifier"),
    *_dense("span", "qa_outputs"),
)


def _google(row: Row) -> Row:
    """The row in google-research/bert's names, which are paths and whose kernels are [in, out]."""
    name = row.theirs.replace("layer.{i}", "layer_{i}").replace(".", "/")
    if "LayerNorm" in name:
        name = name.replace("/weight", "/gamma").replace("/bias", "/beta")
    elif "embeddings" in name:
        name = name.removesuffix("/weight")
    return Row(row.ours, re.sub("/weight$", "/kernel", name))


# google-research/bert: modeling.py, run_pretraining.py, run_classifier.py, run_squad.py. The heads,
# which are not made by `tf.layers.dense`, are stored as [out, in].
GOOGLE: tuple[Row, ...] = (
    *(
        _google(row)
        for row in HUGGINGFACE
        if row.ours.startswith(("bert/", "masked_lm/")) and row.ours != "masked_lm/bias"
    ),
    Row("masked_lm/bias", "cls/predictions/output_bias"),
    Row("next_sentence/kernel", "cls/seq_relationship/output_weights", "transpose"),
    Row("next_sentence/bias", "cls/seq_relationship/output_bias"),
    Row("classifier/kernel", "output_weights", "transpose"),
    Row("classifier/bias", "output_bias"),
    Row("span/kernel", "cls/squad/output_weights", "transpose"),
    Row("span/bias", "cls/squad/output_bias"),
)

FORMATS = {
    "huggingface": Format(
        "Hugging Face",
        HUGGINGFACE,
        (
            NonParameter(r"bert\.embeddings\.position_ids", "the numbers 0, 1, 2 ...", "arange"),
            NonParameter(r"bert\.embeddings\.token_type_ids", "zeros", "zeros"),
            NonParameter(
                r"cls\.predictions\.decoder\.weight",
                "the table of word embeddings once more",
                "bert.embeddings.word_embeddings.weight",
            ),
            NonParameter(
                r"cls\.predictions\.decoder\.bias",
                "the bias of the masked-LM head once more",
                "cls.predictions.bias",
            ),
        ),
        (
            (r"^module\.", ""),
            (r"^(?=(embeddings|encoder|pooler)\.)", "bert."),
            (r"LayerNorm\.gamma$", "LayerNorm.weight"),
            (r"LayerNorm\.beta$", "LayerNorm.bias"),
        ),
    ),
    "google": Format(
        "google-research/bert",
        GOOGLE,
        (
            NonParameter(r"global_step", "the number of updates"),
            NonParameter(r".+/(adam|lamb)_[mv]", "a slot of the optimizer"),
            NonParameter(r".+/Adam(_1)?", "a slot of the optimizer"),
            NonParameter(r"beta[12]_power", "a counter of the optimizer"),
        ),
    ),
}


def expand(rows: Iterable[Row], num_layers: int) -> tuple[Row, ...]:
    """The rows of a model of `num_layers` layers, without `{i}`."""
    return tuple(
        Row(row.ours.replace("{i}", str(i)), row.theirs.replace("{i}", str(i)), row.transform)
        for row in rows
        for i in range(num_layers if "{i}" in row.ours else 1)
    )


def import_params(
    arrays: Arrays, form: Format, num_layers: int, expected: Shapes, path: str = "the source"
) -> tuple[Arrays, Report]:
    """Foreign tensors as our parameters.

    Args:
      arrays: by their names in the source.
      form: of the source.
      num_layers: of the encoder.
      expected: shape of each parameter that our model has.
      path: of the source, for messages.

    Returns:
      The parameters, float32, and what became of each tensor. Parameters of heads of which the
      source has nothing are missing and listed as fresh.

    Raises:
      ValueError: for tensors that are neither parameters nor known not to be, parameters that are
        missing or have another shape, and copies that are not equal to their original.
    """
    renamed = {name: form.todays_name(name) for name in arrays}
    arrays = _by_todays_name(arrays, renamed)
    rows = {row.theirs: row for row in expand(form.rows, num_layers) if row.ours in expected}
    original = {new: old for old, new in renamed.items()}
    for known in form.non_parameters:  # a copy stands for an original that is not there
        copy = next((name for name in arrays if re.fullmatch(known.pattern, name)), None)
        if known.equals in rows and known.equals not in arrays and copy:
            arrays[known.equals], original[known.equals] = arrays.pop(copy), original.pop(copy)

    params, reasons, unexplained = {}, {}, {}
    for name, array in arrays.items():
        if row := rows.get(name):
            params[row.ours] = _ours(array, row)
        elif known := next((k for k in form.non_parameters if re.fullmatch(k.pattern, name)), None):
            _check_equal(name, known, arrays)
            reasons[original[name]] = known.reason
        else:
            unexplained[original[name]] = array.shape

    absent = expected.keys() - params.keys()
    fresh = {name for name in absent if _is_of_a_head_that_is_absent(name, params)}
    problems = [f"- {name}: {list(shape)}" for name, shape in sorted(unexplained.items())]
    for name, row in rows.items():
        shape = expected[row.ours]
        if row.ours in absent - fresh:
            problems.append(f"+ {name}: {list(_foreign_shape(shape, row))}")
        elif row.ours in params and params[row.ours].shape != shape:
            problems.append(f"- {original[name]}: {list(arrays[name].shape)}")
            problems.append(f"+ {name}: {list(_foreign_shape(shape, row))}")
    if problems:
        more = f"; and {len(problems) - 12} more" if len(problems) > 12 else ""
        raise ValueError(
            f"The tensors of {path} are not those of its configuration (- there, + by the"
            f" configuration): {'; '.join(problems[:12])}{more}."
        )
    used = {name: row for name, row in rows.items() if name in arrays}
    return params, Report(
        used={original[name]: row.ours for name, row in used.items()},
        renamed={original[name]: name for name in used if original[name] != name},
        transposed=tuple(original[n] for n, row in used.items() if row.transform == "transpose"),
        known_non_parameters=reasons,
        cast={
            original[name]: arrays[name].dtype.name
            for name in used
            if arrays[name].dtype != np.float32
        },
        fresh=tuple(sorted(fresh)),
    )


def export_params(params: Mapping[str, np.ndarray], form: Format) -> Arrays:
    """Our parameters under the names and in the layout of another program; ties are not added.

    Raises:
      ValueError: for a parameter that the format has no name for.
    """
    rows = {row.ours: row for row in expand(form.rows, count_layers(params))}
    if unknown := sorted(params.keys() - rows.keys()):
        raise ValueError(f"The format of {form.name} has no name for {', '.join(unknown)}.")
    return {
        row.theirs: np.ascontiguousarray(params[name].T)
        if row.transform == "transpose"
        else np.asarray(params[name])
        for name, row in rows.items()
        if name in params
    }


def count_layers(names: Iterable[str]) -> int:
    """Layers of the encoder that has parameters (or, in any format, tensors) of these names."""
    found = (re.search(r"\bencoder[./]layer[._](\d+)[./]", name) for name in names)
    return max((int(match[1]) + 1 for match in found if match), default=0)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": x}} -> {"a/b": x}."""
    return dict(_leaves(tree, prefix))


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}/")
        else:
            yield prefix + name, value


def unflatten(params: Mapping[str, Any]) -> dict[str, Any]:
    """{"a/b": x} -> {"a": {"b": x}}."""
    tree: dict[str, Any] = {}
    for path, value in params.items():
        *folders, name = path.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = value
    return tree


def _by_todays_name(arrays: Arrays, renamed: dict[str, str]) -> Arrays:
    found: Arrays = {}
    for name, array in arrays.items():
        if renamed[name] in found:
            raise ValueError(f"The source has {renamed[name]} twice, once as {name}.")
        found[renamed[name]] = array
    return found


def _ours(array: np.ndarray, row: Row) -> np.ndarray:
    with np.errstate(over="ignore"):  # whoever imports refuses what is not finite then
        array = array.astype(np.float32, copy=False)
    return np.ascontiguousarray(array.T if row.transform == "transpose" else array)


def _foreign_shape(shape: tuple[int, ...], row: Row) -> tuple[int, ...]:
    return shape[::-1] if row.transform == "transpose" else shape


def _check_equal(name: str, known: NonParameter, arrays: Arrays) -> None:
    array = arrays[name]
    match known.equals:
        case "":
            return
        case "arange":
            wanted = np.arange(array.shape[-1]).reshape(array.shape)
        case "zeros":
            wanted = np.zeros_like(array)
        case original:
            if original not in arrays:
                return
            wanted = arrays[original]
    if not np.array_equal(array, wanted):
        raise ValueError(
            f"{name} should be {known.reason} and has other values: such a model has no"
            " counterpart here."
        )


def _is_of_a_head_that_is_absent(name: str, params: Arrays) -> bool:
    head = name.split("/")[0]
    return head != "bert" and not any(other.startswith(f"{head}/") for other in params)
