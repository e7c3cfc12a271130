"""SentencePiece models (unigram, BPE) as tokenizers, on the `sentencepiece` package."""

import functools
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto
from sentencepiece import sentencepiece_pb2 as text_proto

from bert_jax.files.errors import UserError
from bert_jax.text.tokenization import SPECIAL_TOKENS, Tokenizer, is_cjk, is_punctuation

# Spellings of [PAD] [UNK] [CLS] [SEP] [MASK] in models: ours (and ALBERT's) first, then others'.
SPELLINGS = (
    ("[PAD]", "<pad>"),
    ("[UNK]", "<unk>"),
    ("[CLS]", "<cls>", "<s>"),
    ("[SEP]", "<sep>", "</s>"),
    ("[MASK]", "<mask>"),
)

# SentencePiece's mark for a space.
SPACE = "▁"

# The message of a .model file (made at import, so unknown to type checkers), its types of pieces.
_Model: Any = getattr(proto, "ModelProto")  # noqa: B009
_Type = _Model.SentencePiece
_Text: Any = getattr(text_proto, "SentencePieceText")  # noqa: B009

_CONTROLS = {name for names in SPELLINGS for name in names}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model; its normalization is applied after ours (lower case, or nothing).

    Args:
      vocabulary: the bytes of a .model file.
      lowercase: whether text is lower cased first; the model must be trained on such text.
      path: name of the model in errors.

    Raises:
      UserError: it is not a SentencePiece model, or a special token is missing.
    """

    KIND = "sentencepiece"

    def __init__(self, vocabulary: bytes, lowercase: bool, path: str = "the model"):
        super().__init__(vocabulary, lowercase, path)
        self._model = parse_model(vocabulary, path)
        self.pieces = tuple(piece.piece for piece in self._model.pieces)
        ids = {piece: index for index, piece in enumerate(self.pieces)}
        special = [next((ids[name] for name in names if name in ids), -1) for names in SPELLINGS]
        if missing := [name for name, i in zip(SPECIAL_TOKENS, special, strict=True) if i < 0]:
            raise UserError(
                f"{path} lacks {', '.join(missing)}: a SentencePiece model for BERT has a piece for"
                f" each of {' '.join(SPECIAL_TOKENS)}; train it with control_symbols."
            )
        self._special_ids = special
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = special
        self.end_id = self.sep_id
        # Like RoBERTa, XLM-RoBERTa has </s></s> between two texts.
        self.num_separators = 2 if self.pieces[:3] == ("<s>", "<pad>", "</s>") else 1
        self.is_continuation = np.array([self._continues(i) for i in range(len(self.pieces))])
        self.random_words = np.arange(len(self.pieces), dtype=np.int32)
        # Independent of the types in the model: text is never encoded as a control symbol.
        self._processor = self._make_processor(_Type.CONTROL)

    def encode(self, text: str, special_tokens: bool = False) -> list[int]:
        # Lone surrogates cannot be encoded in UTF-8.
        if not text.isascii():
            text = _LONE_SURROGATE.sub("\ufffd", text)
        if special_tokens:
            return self._encode_special(text)
        return self._processor.encode(text.lower() if self.lowercase else text)

    def character_spans(self, text: str) -> list[tuple[int, int]]:
        text = _LONE_SURROGATE.sub("\ufffd", text)
        # The character that each byte of sentencepiece's input comes from.
        sources: list[int] = []
        for place, character in enumerate(text):
            seen = character.lower() if self.lowercase else character
            sources += [place] * len(seen.encode())
        seen = text.lower() if self.lowercase else text
        encoded = _Text.FromString(self._processor.encode(seen, out_type="serialized_proto"))
        spans = []
        for piece in encoded.pieces:
            places = sources[piece.begin : piece.end]
            while places and text[places[0]].isspace():
                places.pop(0)
            stop = sources[piece.end - 1] + 1 if piece.end else 0
            spans.append((places[0], stop) if places else (stop, stop))
        return spans

    def decode(self, ids: Iterable[int]) -> str:
        text = ""
        for is_special, group in groupby(map(int, ids), self._special_ids.__contains__):
            part = list(group)
            if is_special:
                text += "".join(f" {self.pieces[i]}" for i in part)
            else:
                text += " " * self.pieces[part[0]].startswith(SPACE) + self._processor.decode(part)
        return text.strip()

    def _continues(self, index: int) -> bool:
        """Whether a piece continues a word; marks and ideographs are words, as in WordPiece."""
        piece = self.pieces[index]
        if index in self._special_ids or not piece or piece.startswith(SPACE):
            return False
        is_byte = self._model.pieces[index].type == _Type.BYTE
        return is_byte or not (is_punctuation(piece[0]) or is_cjk(piece[0]))

    def _make_processor(self, special_type: int) -> sentencepiece.SentencePieceProcessor:
        model = type(self._model)()
        model.CopyFrom(self._model)
        for index in self._special_ids:
            if index != self.unk_id:
                model.pieces[index].type = special_type
        return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())

    @functools.cached_property
    def _special_processor(self) -> sentencepiece.SentencePieceProcessor:
        return self._make_processor(_Type.USER_DEFINED)

    def _encode_special(self, text: str) -> list[int]:
        spellings = [self.pieces[i] for i in self._special_ids if i != self.unk_id]
        text = text.replace(SPECIAL_TOKENS[-1], self.pieces[self.mask_id])
        parts = re.split(f"({'|'.join(map(re.escape, spellings))})", text)
        if self.lowercase:
            parts = [part if part in spellings else part.lower() for part in parts]
        ids = self._special_processor.encode("".join(parts))
        # "a [MASK]" -> "▁a" "▁" "[MASK]": [MASK] replaces a word and its space.
        return [
            i
            for i, after in zip(ids, [*ids[1:], self.unk_id], strict=False)
            if not (self.pieces[i] == SPACE and self.pieces[after] in spellings)
        ]


def make_unigram_model(pieces: Sequence[tuple[str, float]], unk_id: int, charsmap: bytes) -> bytes:
    """Returns the bytes of a SentencePiece model of type unigram.

    Args:
      pieces: piece and score, by id; special tokens are recognized by their spelling.
      unk_id: id of the piece for unknown characters.
      charsmap: the compiled table of its normalization.
    """
    model = _Model()
    for index, (piece, score) in enumerate(pieces):
        kind = _Type.UNKNOWN if index == unk_id else _Type.NORMAL
        kind = _Type.CONTROL if piece in _CONTROLS and index != unk_id else kind
        model.pieces.add(piece=piece, score=score, type=kind)
    trainer, spec = model.trainer_spec, model.normalizer_spec
    trainer.model_type, trainer.vocab_size, trainer.unk_id = trainer.UNIGRAM, len(pieces), unk_id
    ids = {piece: index for index, (piece, _) in enumerate(pieces)}
    for name, piece in (("bos_id", "<s>"), ("eos_id", "</s>"), ("pad_id", "<pad>")):
        setattr(trainer, name, ids.get(piece, -1))
    trainer.unk_piece = pieces[unk_id][0]
    spec.name, spec.precompiled_charsmap = "charsmap", charsmap
    return model.SerializeToString()


def parse_model(vocabulary: bytes, path: str) -> Any:
    """Returns the message of a .model file. Raises UserError if it is not one."""
    try:
        sentencepiece.SentencePieceProcessor(model_proto=vocabulary)
        return _Model.FromString(vocabulary)
    except Exception as error:  # each of the two libraries has its own
        raise UserError(f"{path} is not a SentencePiece model: it cannot be parsed.") from error
