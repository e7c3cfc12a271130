"""How sentence-transformers makes vectors of texts: modules.json and the files that it names.

    modules.json                       the modules in order: Transformer, Pooling, Normalize, or
                                       MLMTransformer, SpladePooling for sparse vectors, or
                                       Transformer, Dense, MultiVectorMask, Normalize for a vector
                                       of each token
    1_Pooling/config.json              the pooling, and whether it includes the tokens of a prompt
    1_SpladePooling/config.json        maximum or sum, and the function of the logits
    1_Dense/config.json                the projection of each token, for a vector of each (ColBERT)
    2_MultiVectorMask/config.json      tokens that do not count
    sentence_bert_config.json          the maximum length, lower case (formats.hf_vocabulary)
    tokenizer_config.json              the maximum length, if that file has none
    config_sentence_transformers.json  prompts by name, and the name of the default one

A workdir has the same files if its vectors are trained, or were imported with them. If vectors
are made in a way that this package lacks, a workdir has only the reason.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.files.atomic import read_json, write_json
from bert_jax.files.errors import UserError
from bert_jax.formats.foreign import read_json_object, sibling

MODULES = "modules.json"
_POOLING, _SPLADE_POOLING, _NORMALIZE = "1_Pooling", "1_SpladePooling", "2_Normalize"
_SETTINGS, PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"
# Up to version 5 the pooling has a field for each mode, later one field.
_MODE, _NEW_MODE = "pooling_mode_", "pooling_mode"
_MODES = {"mean_tokens": "mean", "max_tokens": "max", "cls_token": "cls"}
POOLINGS = tuple(_MODES.values())
# The pooling of sparse vectors: the maximum of log(1 + relu(logit)) over all tokens.
SPLADE = "splade"
_MLM_TRANSFORMER, _SPLADE_MODULE = "MLMTransformer", "SpladePooling"
_SPLADE_VALUES = {"pooling_strategy": "max", "activation_function": "relu"}
# The pooling of models with a vector for each token (ColBERT): none.
MULTI = "multi"
_DENSE, _MASK_MODULE = "Dense", "MultiVectorMask"
PROJECTION, _MASK, _NORMALIZE_TOKENS = "1_Dense", "2_MultiVectorMask", "3_Normalize"
_OF_TOKENS = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
_DENSE_VALUES = {
    "bias": False,
    "activation_function": "torch.nn.modules.linear.Identity",
    **_OF_TOKENS,
}
_MASK_VALUES: dict[str, Any] = {"skiplist_words": [], "keep_only_token_ids": None}
# The module by which a kind of vectors is recognized, and the classes of sentence-transformers.
_KINDS = {_SPLADE_MODULE: SPLADE, _MASK_MODULE: MULTI}
_CLASSES = {"dense": "SentenceTransformer", SPLADE: "SparseEncoder", MULTI: "MultiVectorEncoder"}
# Their values of similarity_fn_name, if it is not missing.
_SIMILARITY = {"dense": "cosine", SPLADE: "dot", MULTI: "maxsim"}
# The names of the first module: now, and in the first versions.
_TRANSFORMERS = ("Transformer", "BERT", "RoBERTa", "DistilBERT", "XLMRoBERTa")
_SETTINGS_FILES = (
    *(_SETTINGS, "sentence_roberta_config.json", "sentence_distilbert_config.json"),
    "sentence_xlm-roberta_config.json",
)
# Key of _SETTINGS -> the only value that gives our vectors; other keys must be empty.
ONLY: dict[str, Any] = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
# The same for a Transformer whose masked-LM head is read.
_ONLY_SPARSE = ONLY | {
    "transformer_task": "fill-mask",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
}
_FOLLOWED = ("max_seq_length", "do_lower_case")
# Keys of PROMPTS that leave a part of each vector out.
_CUTS = ("truncate_dim", "max_active_dims")
_IRRELEVANT = ("unpad_inputs",)
# Key of a module in the modules.json of a workdir: what is not done here.
_UNKNOWN = "unknown"
# A model_max_length above it means that there is none.
_NO_LENGTH = 1_000_000


@dataclasses.dataclass(frozen=True)
class SentenceVectors:
    """How the vector of a text is made from the last hidden states of its tokens.

    Attributes:
      pooling: `mean`, `max` or `cls`; SPLADE, whose vectors are weights of words; MULTI, with a
        vector for each token; "" if the folder is not one of sentence-transformers.
      normalize: whether vectors are scaled to length 1.
      max_length: tokens of a text, special ones included; 0: as many as the model has positions.
      unknown: what else is done, which this package does not do; "" if nothing.
      prompts: texts that come before a text, by name.
      default_prompt: name of the prompt that every text has; "": none.
      pools_prompt: whether the tokens of a prompt are pooled.
      features: dimensions of the vector of a token, with MULTI.
      similarity: name of the function that compares vectors; "": that of the kind.
    """

    pooling: str = ""
    normalize: bool = False
    max_length: int = 0
    unknown: str = ""
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_prompt: str = ""
    pools_prompt: bool = True
    features: int = 0
    similarity: str = ""

    def prompt(self, chosen: str) -> str:
        """Returns the text that comes before each text.

        Args:
          chosen: the name of a prompt, or the text itself; "": the default prompt.

        Raises:
          UserError: it looks like a name but is not one, or prompts are pooled in another way.
        """
        if self.default_prompt and not chosen and self.default_prompt not in self.prompts:
            raise UserError(
                f"{PROMPTS} has default_prompt_name={self.default_prompt!r}, which is none of its"
                f" prompts ({', '.join(self.prompts)}): name one by prompt=."
            )
        text = self.prompts.get(chosen or self.default_prompt, chosen)
        if text == chosen and chosen.isidentifier():
            raise UserError(
                f"prompt={chosen} is none of the model's prompts"
                f" ({', '.join(self.prompts) or 'it has none'}): name one, or give the text itself,"
                f' such as prompt="{chosen}: ".'
            )
        if text and not self.pools_prompt:
            raise UserError(
                f"The model leaves the tokens of its prompt {text!r} out of the pooling, which is"
                " not done here."
            )
        return text

    def describe(self) -> str:
        """Returns a sentence about the vectors; "" if nothing is known of them."""
        if self.unknown:
            return f"{MODULES} {self.unknown}, which is not done here: encode needs --pooling."
        if not self.pooling:
            return ""
        scaled = ", scaled to length 1" if self.normalize else ""
        made = f"{self.pooling} of the last hidden states{scaled}"
        if self.pooling == SPLADE:
            made = "weights of words (SPLADE), by encode --sparse"
        if self.pooling == MULTI:
            made = "one of each token (ColBERT), by encode --multi"
        prompts = ", ".join(name for name, text in self.prompts.items() if text)
        prompts = f"; prompts {prompts}" if prompts else ""
        return f"Vector of a text: {made}{prompts}."


def read_sentence_vectors(folder: str) -> SentenceVectors:
    """Returns what the modules.json of a folder says; the defaults if there is none."""
    if not os.path.isfile(path := os.path.join(folder, MODULES)):
        return SentenceVectors()
    try:
        modules = read_json(path)
        kinds = [(str(module["type"]).split(".")[-1], module["path"]) for module in modules]
        first = os.path.join(folder, kinds[0][1])
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise UserError(f"{path} is corrupt ({error!r}): get another one.") from None
    names = [kind for kind, _ in kinds if kind != "Dropout"]  # which does nothing here
    kind = next((kind for module, kind in _KINDS.items() if module in names), "dense")
    wanted = {"dense": "Pooling", SPLADE: _SPLADE_MODULE, MULTI: _MASK_MODULE}[kind]
    poolings = [os.path.join(folder, part) for name, part in kinds if name == wanted]
    values = _first_object([os.path.join(part, "config.json") for part in poolings])
    read_modes = {"dense": _modes, SPLADE: _splade_modes, MULTI: lambda _: [MULTI]}
    modes = read_modes[kind](values)
    pooling = _MODES.get(modes[0], modes[0]) if len(modes) == 1 else ""
    pooling = pooling if pooling in (*POOLINGS, SPLADE, MULTI) else ""
    settings = _first_object([os.path.join(first, name) for name in _SETTINGS_FILES])
    prompts = _first_object([os.path.join(folder, PROMPTS)])
    unknown = next((str(m[_UNKNOWN]) for m in modules if _UNKNOWN in m), "")
    unknown = unknown or _unknown_modules(names) or _unknown_settings(settings, prompts, kind)
    unknown = unknown or ("" if pooling else f"pools by {' and '.join(modes)}")
    if kind == SPLADE and names[0] != _MLM_TRANSFORMER and "transformer_task" not in settings:
        unknown = unknown or "pools hidden states for sparse vectors"
    if kind == MULTI and not unknown:
        unknown = _unknown_tokens(folder, kinds, prompts)
    similarity = prompts.get("similarity_fn_name") or ""
    return SentenceVectors(
        pooling if wanted in names else "",
        "Normalize" in names,
        read_max_length(first, settings),
        unknown,
        similarity="" if similarity == _SIMILARITY[kind] else similarity,
        features=_projection_size(folder, kinds) if kind == MULTI else 0,
        prompts=prompts.get("prompts") or {},
        default_prompt=prompts.get("default_prompt_name") or "",
        pools_prompt=values.get("include_prompt", True),
    )


def read_max_length(folder: str, settings: Mapping[str, Any] | None = None) -> int:
    """Returns the length in tokens at which texts are cut off; 0: none is given.

    Args:
      folder: has the tokenizer_config.json, which is used if `settings` have no length.
      settings: the settings of sentence-transformers; None reads them from the folder.
    """
    if settings is None:
        settings = _first_object([os.path.join(folder, name) for name in _SETTINGS_FILES])
    length = settings.get("max_seq_length")
    if length is None:
        config = _first_object([os.path.join(folder, "tokenizer_config.json")])
        length = config.get("model_max_length")
    return int(length) if length and length < _NO_LENGTH else 0


def _projection_size(folder: str, kinds: Sequence[tuple[str, str]]) -> int:
    paths = [os.path.join(folder, part, "config.json") for name, part in kinds if name == _DENSE]
    return int(_first_object(paths).get("out_features", 0))


def projection_file(folder: str) -> str:
    """Returns the file with the projection of tokens; "" if a text has one vector."""
    if read_sentence_vectors(folder).pooling != MULTI:
        return ""
    modules = read_json(os.path.join(folder, MODULES))
    (part,) = [m["path"] for m in modules if str(m["type"]).endswith(_DENSE)]
    return os.path.join(folder, part, "model.safetensors")


def _unknown_modules(names: list[str]) -> str:
    """Returns what differs from a Transformer, a Pooling and any scaling to length 1.

    Or, for sparse vectors, from a Transformer with its masked-LM head and their pooling; for those
    of tokens, from a Transformer, a projection, a mask and a scaling to length 1.
    """
    if _MASK_MODULE in names:
        rest = [name for name in names[1:] if name != _MASK_MODULE]  # which may come anywhere
        if names[0] in _TRANSFORMERS and rest == [_DENSE, "Normalize"]:
            return ""
    if names[1:] == [_SPLADE_MODULE] and names[0] in (_MLM_TRANSFORMER, *_TRANSFORMERS):
        return ""
    if other := [name for name in names if name not in (*_TRANSFORMERS, "Pooling", "Normalize")]:
        return f"has a module {other[0]}"
    first, second, rest = names[:1], names[1:2], names[2:]
    if set(first) & set(_TRANSFORMERS) and second == ["Pooling"] and set(rest) <= {"Normalize"}:
        return ""
    return f"has the modules {', '.join(names)} in this order"


def _unknown_settings(settings: Mapping[str, Any], prompts: Mapping[str, Any], kind: str) -> str:
    """Returns the setting of the first module, or of the model, that is not followed."""
    only = _ONLY_SPARSE if kind == SPLADE else ONLY
    for key, value in settings.items():
        if key not in (*_FOLLOWED, *_IRRELEVANT) and value and value != only.get(key):
            return f"belongs to a folder with {key}={value!r} in {_SETTINGS}"
    wanted = _CLASSES[kind]
    if (found := prompts.get("model_type", wanted)) != wanted:
        return f"belongs to a {found}"
    for key in _CUTS:
        if value := prompts.get(key):
            return f"belongs to a folder with {key}={value!r} in {PROMPTS}"
    return ""


def _unknown_tokens(
    folder: str, kinds: Sequence[tuple[str, str]], prompts: Mapping[str, Any]
) -> str:
    """Returns what is done with the vectors of tokens that is not done here; "" if nothing."""
    for module, values in ((_DENSE, _DENSE_VALUES), (_MASK_MODULE, _MASK_VALUES)):
        part = next(part for name, part in kinds if name == module)
        found = _first_object([os.path.join(folder, part, "config.json")])
        for key, value in values.items():
            if (got := found.get(key, value)) != value:
                return f"has a module {module} with {key}={got!r}"
    if (name := prompts.get("similarity_fn_name")) not in (None, _SIMILARITY[MULTI]):
        return f"belongs to a model with similarity_fn_name={name!r}"
    return ""


def lowercases(path: str) -> bool:
    """Returns whether text is lower cased before the tokenizer, in the folder of a Transformer."""
    settings = _first_object([sibling(path, name) for name in _SETTINGS_FILES])
    return settings.get("do_lower_case") is True


def _modes(values: Mapping[str, Any]) -> list[str]:
    """Returns the modes of a pooling by their names in its configuration."""
    if modes := values.get(_NEW_MODE):
        return [modes] if isinstance(modes, str) else list(map(str, modes))
    if not any(name.startswith(_MODE) for name in values):
        return ["mean"]  # the default
    names = (name for name in values if values[name] is True and name.startswith(_MODE))
    return [name.removeprefix(_MODE) for name in names]


def _splade_modes(values: Mapping[str, Any]) -> list[str]:
    """Returns [SPLADE] for its pooling, or the names of another one."""
    found = [str(values.get(key, value)) for key, value in _SPLADE_VALUES.items()]
    return [SPLADE] if found == list(_SPLADE_VALUES.values()) else found


def _first_object(paths: list[str]) -> dict[str, Any]:
    return next((read_json_object(path) for path in paths if os.path.isfile(path)), {})


def write_sentence_vectors(
    vectors: SentenceVectors, folder: str, hidden_size: int, is_workdir: bool = False
) -> None:
    """Writes what `read_sentence_vectors` and all versions of sentence-transformers read.

    Nothing is written if the pooling is not known, or something else is done; a workdir gets the
    reason.

    Args:
      vectors: how vectors are made.
      folder: folder of the model, where its other files are.
      hidden_size: features of a hidden state.
      is_workdir: whether only this package reads the folder.
    """
    if is_workdir and vectors.unknown:
        module = {"type": _TRANSFORMERS[0], "path": "", _UNKNOWN: vectors.unknown}
        write_json(os.path.join(folder, MODULES), [module], sort_keys=False)
    if not vectors.pooling or vectors.unknown:
        return
    settings = {"do_lower_case": False}  # the tokenizer does it
    settings |= {"max_seq_length": vectors.max_length} if vectors.max_length else {}
    model: dict[str, Any] = {"similarity_fn_name": _SIMILARITY["dense"]}
    package, configs = "sentence_transformers.models", {}
    if vectors.pooling == SPLADE:
        package = "sentence_transformers.sparse_encoder.models"
        modules = [(_MLM_TRANSFORMER, ""), (_SPLADE_MODULE, _SPLADE_POOLING)]
        configs[_SPLADE_POOLING] = _SPLADE_VALUES
        model = {"similarity_fn_name": _SIMILARITY[SPLADE], "model_type": _CLASSES[SPLADE]}
    elif vectors.pooling == MULTI:
        package = "sentence_transformers"
        modules = [
            ("base.modules.transformer.Transformer", ""),
            ("base.modules.dense.Dense", PROJECTION),
            ("multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask", _MASK),
            ("base.modules.normalize.Normalize", _NORMALIZE_TOKENS),
        ]
        sizes = {"in_features": hidden_size, "out_features": vectors.features}
        configs[PROJECTION] = sizes | _DENSE_VALUES
        configs |= {_MASK: _MASK_VALUES, _NORMALIZE_TOKENS: _OF_TOKENS}
        model = {"similarity_fn_name": _SIMILARITY[MULTI], "model_type": _CLASSES[MULTI]}
    else:
        modules = [("Transformer", ""), ("Pooling", _POOLING)]
        modules += [("Normalize", _NORMALIZE)] if vectors.normalize else []
        pooling: dict[str, Any] = {"word_embedding_dimension": hidden_size}
        pooling |= {_MODE + mode: name == vectors.pooling for mode, name in _MODES.items()}
        configs[_POOLING] = pooling | {"include_prompt": vectors.pools_prompt}
    for _, part in modules:
        os.makedirs(os.path.join(folder, part), exist_ok=True)
    contents = {
        MODULES: [
            {"idx": number, "name": str(number), "path": part, "type": f"{package}.{kind}"}
            for number, (kind, part) in enumerate(modules)
        ],
        **{f"{part}/config.json": config for part, config in configs.items()},
        _SETTINGS: settings,
        PROMPTS: {
            "prompts": dict(vectors.prompts),
            "default_prompt_name": vectors.default_prompt or None,
            **model,
            **({"similarity_fn_name": vectors.similarity} if vectors.similarity else {}),
        },
    }
    for name, content in contents.items():
        write_json(os.path.join(folder, name), content, sort_keys=False)
