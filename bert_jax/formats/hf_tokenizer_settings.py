"""The settings of transformers' tokenizers, in the files beside a vocabulary.

Settings that change the ids of a text are followed, if this package has them, or refused by name;
the rest do not affect ids. docs/checkpoints.md lists every key. A class of transformers, such as
`BertTokenizer`, takes the switches of tokenizer_config.json and only the pieces of tokenizer.json;
a generic one, such as `PreTrainedTokenizerFast`, takes tokenizer.json as it is.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax.files.errors import UserError
from bert_jax.formats.foreign import read_json_object, sibling
from bert_jax.formats.sentence_transformers import lowercases
from bert_jax.text.byte_level_tokenizer import component_steps
from bert_jax.text.ruled_wordpiece import Components

Json = Mapping[str, Any]

CONFIG, SPECIAL, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
# Prefixes of class names, by the type of the model in a tokenizer.json.
_BERT = (
    *("Bert", "DistilBert", "Electra", "MobileBert", "ConvBert", "Lxmert", "SqueezeBert"),
    *("LayoutLM", "RetriBert"),
)
CLASSES = {
    "WordPiece": _BERT,
    "BPE": ("Roberta", "GPT2", "Longformer", "Bart"),
    "Unigram": ("XLMRoberta",),
}
GENERIC = ("PreTrainedTokenizer", "TokenizersBackend", "PythonBackend")
# Those that give no token types.
_WITHOUT_TYPES = ("DistilBert", *CLASSES["BPE"], *CLASSES["Unigram"])
# Key -> the only value that gives the ids of this package.
ONLY: dict[str, Any] = {
    **{"do_basic_tokenize": True, "never_split": [], "word_tokenizer_type": "basic"},
    **{"subword_tokenizer_type": "wordpiece", "wordpieces_prefix": "##", "clean_text": True},
    "truncation_side": "right",
}
ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
# Switches of BERT's classes -> field of WordRules, and their value in transformers if missing.
SWITCHES: dict[str, tuple[str, Any]] = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("split_ideographs", True),
}


@dataclasses.dataclass(frozen=True)
class TokenizerSettings:
    """Content of the settings' files of a folder.

    Attributes:
      path: path of tokenizer_config.json, for messages.
      config: its content; {} if there is no such file.
      added: added token -> file that names it.
      name: class of the tokenizer, without "Fast"; "" if no file names it.
      frames: whether texts are framed by [CLS] and [SEP].
      lowercases: whether sentence-transformers lower cases texts before the tokenizer.
    """

    path: str
    config: Json
    added: Mapping[str, str]
    name: str
    frames: bool = True
    lowercases: bool = False

    @property
    def is_generic(self) -> bool:
        """Whether transformers takes tokenizer.json as it is."""
        return self.name in GENERIC

    @property
    def gives_types(self) -> bool:
        """Whether the second text of a pair has token type 1, for models that read types."""
        names = self.config.get("model_input_names")
        if names is not None:
            return "token_type_ids" in names
        return not self.name.startswith(_WITHOUT_TYPES)

    def check(self, kind: str, special: Sequence[str], tokenizer: Json) -> None:
        """Raises UserError for a setting with which transformers computes different ids.

        Args:
          kind: type of the model in a tokenizer.json.
          special: the spellings of [PAD] [UNK] [CLS] [SEP] [MASK]; "" for those that are missing.
          tokenizer: content of tokenizer.json; {} if it is not used.
        """
        if self.name not in (*GENERIC, *(f"{name}Tokenizer" for name in CLASSES[kind]), ""):
            raise UserError(
                f"{self.path} names the class {self.name}: of tokenizers of the type {kind!r}, only"
                f" {', '.join(CLASSES[kind])} and generic ones are supported."
            )
        for key, expected in ONLY.items():
            value = self.config.get(key)
            if value is not None and value != expected:
                raise UserError(f"{self.path} has {key}={value!r}: only {expected!r} is supported.")
        if "AutoTokenizer" in (self.config.get("auto_map") or {}):
            raise UserError(f"{self.path} has its own class (auto_map), which is not run.")
        if self.lowercases and kind == "BPE":
            raise UserError(
                f"The byte-level BPE of {self.path} has case: do_lower_case=True in"
                " sentence_bert_config.json is not supported with it."
            )
        for role, expected in zip(ROLES, special, strict=True):
            value = content_of(self.config.get(role))
            if value and expected and value != expected:
                raise UserError(
                    f"{self.path} has {role}={value!r}: with this vocabulary only {expected!r} is"
                    " supported."
                )
        known = {*special}
        if kind == "BPE":
            known |= {token["content"] for token in tokenizer.get("added_tokens") or ()}
        for token, file in self.added.items():
            if token not in known:
                raise UserError(
                    f"{file} adds the token {token!r}, which is found in text before it is split"
                    " into words: only the special tokens are supported."
                )
        self._check_framing(tokenizer, special, has_types=kind == "WordPiece")

    def _check_framing(self, tokenizer: Json, special: Sequence[str], has_types: bool) -> None:
        """Refuses tokens around a text, or a pair, other than [CLS] and [SEP]."""
        if self.is_generic and self.frames:
            for key in ("add_bos_token", "add_eos_token"):
                if self.config.get(key) is not None:
                    raise UserError(
                        f"{self.path} has {key}={self.config[key]!r}: texts are framed by [CLS] and"
                        " [SEP] here, so leave it out."
                    )
        if "post_processor" not in tokenizer or not self.frames:
            return
        steps = component_steps(tokenizer["post_processor"], "processors")
        cls, sep = special[2:4]
        frames, expected = list(_frames(steps)), [cls, "A", sep]
        if (frames and frames != [expected]) or (not frames and self.is_generic):
            shown = " and ".join(" ".join(frame) for frame in frames) or "nothing"
            raise UserError(
                f"{sibling(self.path, 'tokenizer.json')} has a post_processor that makes {shown} of"
                f" a text A: only {' '.join(expected)} is supported."
            )
        if self.is_generic:
            self._check_pairs(steps, cls, sep, has_types)

    def _check_pairs(self, steps: Sequence[Json], cls: str, sep: str, has_types: bool) -> None:
        """Refuses other tokens around a pair, and other types."""
        file = sibling(self.path, "tokenizer.json")
        between = [(sep, 0)] * (2 if sep == "</s>" else 1)
        expected = [(cls, 0), ("A", 0), *between, ("B", 1), (sep, 1)]
        shown = " ".join(name for name, _ in expected)
        for pair in _pair_frames(steps):
            if (found := " ".join(name for name, _ in pair)) != shown:
                raise UserError(
                    f"{file} has a post_processor that makes {found} of a pair: only {shown} is"
                    " supported."
                )
            if has_types and self.gives_types and pair != expected:
                raise UserError(
                    f"{file} gives the second text of a pair the token type of the first: only the"
                    " types 0 and 1 are supported. To use type 0 for both, leave token_type_ids out"
                    f" of model_input_names in {self.path}."
                )

    def switches(self, found: Components | None, lowercase: bool | None) -> dict[str, Any]:
        """Returns the fields of `WordRules`; `lowercase` is None if no file sets it.

        Raises UserError if tokenizer.json has a switch that its class does not read there.

        Args:
          found: components of tokenizer.json; None: there is none.
          lowercase: the user's choice; None: none.
        """
        values = {field: default for field, default in SWITCHES.values()} | {"lowercase": None}
        if found:
            values |= dataclasses.asdict(found.rules)
        if lowercase is not None:
            values["lowercase"] = lowercase
        if found and self.is_generic:
            return values
        for key, (field, default) in SWITCHES.items():
            if field == "lowercase" and lowercase is not None:
                continue
            if self.config.get(key) is not None:
                values[field] = self.config[key]
            elif found and values[field] != default and os.path.isfile(self.path):
                raise UserError(
                    f"{sibling(self.path, 'tokenizer.json')} has {field}={values[field]}, which"
                    f" transformers' {self.name or 'BertTokenizer'} does not read there: write"
                    f" {key} into {self.path}, or name the class PreTrainedTokenizerFast."
                )
        return values


def read_settings(path: str, frames: bool = True) -> TokenizerSettings:
    """Returns the settings of a folder, or of the folder of a file.

    Args:
      path: the folder, or a file in it.
      frames: whether texts are framed by [CLS] and [SEP].

    Raises:
      UserError: a file cannot be read.
    """
    config, special, added = (_read(sibling(path, name)) for name in (CONFIG, SPECIAL, ADDED))
    config = {**special, **config}
    tokens = {name: sibling(path, ADDED) for name in added}
    for key in ("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"):
        more = config.get(key) or ()
        more = more.values() if isinstance(more, Mapping) else more
        tokens |= dict.fromkeys(map(content_of, more), sibling(path, CONFIG))
    files = (config, _read(sibling(path, "config.json")))
    named = next(filter(None, (values.get("tokenizer_class") for values in files)), "")
    name = str(named).removesuffix("Fast")
    return TokenizerSettings(sibling(path, CONFIG), config, tokens, name, frames, lowercases(path))


def _read(path: str) -> dict[str, Any]:
    return read_json_object(path) if os.path.isfile(path) else {}


def content_of(token: Any) -> str:
    """Returns the text of a special token, which may be an object with its options."""
    return str((token or {}).get("content", "")) if isinstance(token, Mapping) else str(token or "")


def _frames(steps: Sequence[Json]) -> Iterator[list[str]]:
    """Yields what each step of a post_processor makes of a text A."""
    for step in steps:
        match step:
            case {"type": "TemplateProcessing"}:
                yield [part["id"] for item in step["single"] for part in item.values()]
            case {"type": "BertProcessing" | "RobertaProcessing"}:
                yield [step["cls"][0], "A", step["sep"][0]]


def _pair_frames(steps: Sequence[Json]) -> Iterator[list[tuple[str, int]]]:
    """Yields what each template in a post_processor makes of a pair A, B: names and types."""
    for step in steps:
        if pair := step.get("pair"):
            yield [(part["id"], part["type_id"]) for item in pair for part in item.values()]
