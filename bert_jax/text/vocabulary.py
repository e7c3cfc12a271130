"""Trains a vocabulary reproducibly: the same text gives the same bytes.

    counts = merge_counts(count_words("wordpiece", chunk, lowercase=True) for chunk in chunks)
    train_vocabulary("wordpiece", counts, vocab_size=30_522, path="vocab.txt")

A vocabulary is a function of word counts. Therefore the text is read once, in any number
of processes, into tables of bounded size that are merged in the order of the chunks.

A vocabulary of `words` is all words of the text, the most frequent first.

The three kinds with pieces of words come from SentencePiece's trainers on one thread, where every
tie is broken. Its BPE pieces become WordPiece's: `▁ab`, at the start of a word, is `ab`, and `b`
within one is `##b`. (The widely used Rust WordPiece trainer gives another vocabulary at every run.)
"""

import io
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import sentencepiece

from bert_jax.files.atomic import write_bytes
from bert_jax.files.errors import UserError
from bert_jax.text.sentencepiece_tokenizer import SPACE
from bert_jax.text.tokenization import (
    SPECIAL_TOKENS,
    Tokenizer,
    basic_tokens,
    is_cjk,
    is_punctuation,
    split_runs,
)
from bert_jax.text.word_tokenizer import WordTokenizer, make_word_vocabulary
from bert_jax.text.wordpiece import MAX_WORD_LENGTH

# The file that is written, by kind of vocabulary.
FILE_NAMES = dict(
    wordpiece="vocab.txt", unigram="vocab.model", bpe="vocab.model", words="vocab.txt"
)

# Distinct words kept; a table grows to twice this number before it is cut back.
MAX_WORDS = 250_000
# The same where every word becomes an entry. (The published ELMo has 793,471.)
MAX_ENTRIES = 2_000_000

# SentencePiece sees longer runs of text without a space (Chinese, addresses) in parts.
MAX_RUN_LENGTH = 48

# Share of text characters that the alphabet covers; the rarest are left out.
COVERAGE = 0.999_999_9
# The minimum that SentencePiece's trainers accept.
_MIN_COVERAGE = 0.98

# Characters with a special meaning in SentencePiece's trainers.
RESERVED = frozenset(f"{SPACE}\u2585")

# Characters of text for the unigram trainer, which expands every occurrence: about 20 bytes of
# memory for each.
UNIGRAM_CHARACTERS = 12_000_000

MIN_SIZE = 64


class WordCounts:
    """How often each word occurs, in bounded memory.

    Attributes:
      counts: word -> occurrences.
      dropped: `words` and `occurrences` of rare words that were dropped to bound the memory.
    """

    def __init__(self, kind: str = ""):
        """Makes an empty word table for a kind of vocabulary."""
        self._limit = MAX_ENTRIES if kind == "words" else MAX_WORDS
        self.counts: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def add(self, words: Iterable[str] | Mapping[str, int]) -> None:
        """Adds words; a full table keeps the most frequent, with ties broken by a checksum."""
        self.counts.update(words)
        if len(counts := self.counts) < 2 * self._limit:
            return
        minimum = sorted(counts.values())[-self._limit]
        ties = sorted((word for word, n in counts.items() if n == minimum), key=_checksum)
        staying = set(ties[: self._limit - sum(n > minimum for n in counts.values())])
        kept = Counter({w: n for w, n in counts.items() if n > minimum or w in staying})
        self.dropped["words"] += len(counts) - len(kept)
        self.dropped["occurrences"] += counts.total() - kept.total()
        self.counts = kept


def _checksum(word: str) -> tuple[int, str]:
    return zlib.crc32(word.encode("utf-8", "surrogatepass")), word


def count_words(kind: str, sentences: Iterable[str], lowercase: bool) -> WordCounts:
    """Counts the words that a vocabulary is trained on.

    Args:
      kind: one of FILE_NAMES. For `wordpiece` and `words`, a word is a word or a punctuation
        mark of the tokenizer's first step; for SentencePiece, all text between two spaces.
      sentences: the text, cut anywhere between words.
      lowercase: whether the tokenizer lower cases text.
    """
    if kind not in FILE_NAMES:
        raise UserError(f"Unknown kind of vocabulary {kind!r}. Available: {', '.join(FILE_NAMES)}.")
    runs = WordCounts(kind)
    for sentence in sentences:
        runs.add(split_runs(sentence))
    words = WordCounts(kind)
    words.dropped = runs.dropped
    for run, count in runs.counts.items():
        if kind in ("wordpiece", "words"):
            parts = basic_tokens(run, lowercase)
        else:
            run = run.lower() if lowercase else run
            parts = [run[i : i + MAX_RUN_LENGTH] for i in range(0, len(run), MAX_RUN_LENGTH)]
        for word in parts:
            words.counts[word] += count
    return words


def merge_counts(parts: Iterable[WordCounts], kind: str = "") -> WordCounts:
    """Returns the sum of all chunks' counts, added in chunk order."""
    total = WordCounts(kind)
    for part in parts:
        total.add(part.counts)
        total.dropped.update(part.dropped)
    return total


def train_vocabulary(
    kind: str, words: WordCounts, vocab_size: int, path: str | os.PathLike
) -> dict[str, int]:
    """Trains a vocabulary and writes it. Ids 0 to 4 are SPECIAL_TOKENS; for `words`, 0 to 2 are
    `<S>`, `</S>` and `<UNK>`.

    Args:
      kind: `wordpiece` and `words` write a vocab.txt, `unigram` and `bpe` a SentencePiece model.
      words: result of `count_words` of the same kind.
      vocab_size: number of entries; a text with too few distinct words gives fewer. Not used
        for `words`, which has all.
      path: the file to write.

    Returns:
      `entries` of the vocabulary; distinct `words` that it was trained on; `words_left_out`, too
      long or with a character that no piece can have; `words_dropped` while counting, too rare;
      `characters` of the alphabet, and `characters_left_out` of it, too rare.

    Raises:
      UserError: the kind is unknown, the text has no words, or the size is too small.
    """
    if vocab_size < MIN_SIZE:
        raise UserError(
            f"vocab_size={vocab_size} is too small to train a vocabulary: at least {MIN_SIZE}."
        )
    is_words = kind == "words"
    usable = {word: n for word, n in words.counts.items() if is_words or _is_usable(word)}
    if not usable:
        raise UserError(
            f"The text has no words, so no {kind} vocabulary can be trained: check data.source."
        )
    characters: Counter[str] = Counter()
    for word, count in usable.items():
        for character in word:
            characters[character] += count
    alphabet = _alphabet(characters, kind, vocab_size // 2)
    if is_words:
        vocabulary, alphabet = make_word_vocabulary(_by_frequency(usable)), list(characters)
    elif kind == "wordpiece":
        vocabulary = _train_wordpiece(usable, alphabet, vocab_size)
    else:
        coverage = sum(characters[c] for c in alphabet) / characters.total()
        if coverage < _MIN_COVERAGE:
            raise UserError(
                f"model.vocab_size={vocab_size} has room for {len(alphabet)} of the text's"
                f" {len(characters)} characters, {coverage:.1%} of all occurrences, and"
                f" SentencePiece needs {_MIN_COVERAGE:.0%}: set a larger model.vocab_size, or"
                " data.vocab=train:wordpiece."
            )
        thinned = _thin_out(usable) if kind == "unigram" else usable
        vocabulary = _train(kind, thinned, vocab_size, coverage, required_chars="".join(alphabet))
    is_text = FILE_NAMES[kind] == "vocab.txt"
    entries = vocabulary.count(b"\n") if is_text else len(_pieces(vocabulary))
    write_bytes(path, vocabulary)
    return {
        "entries": entries,
        "words": len(usable),
        "words_left_out": len(words.counts) - len(usable),
        "words_dropped": words.dropped["words"],
        "characters": len(alphabet),
        "characters_left_out": len(characters) - len(alphabet),
    }


def check_vocabulary(tokenizer: Tokenizer, vocab_size: int, path: str | os.PathLike) -> None:
    """Raises UserError if a vocabulary does not fit in an embedding table of `vocab_size` rows.

    A vocabulary of whole words may be larger: ELMo reads the characters of words, and predicts the
    unknown word in place of the others.
    """
    if isinstance(tokenizer, WordTokenizer):
        return
    if (size := len(tokenizer.pieces)) > vocab_size:
        raise UserError(
            f"The vocabulary {os.fspath(path)} has {size} entries, more than"
            f" model.vocab_size={vocab_size}: set model.vocab_size={size}."
        )


def _is_usable(word: str) -> bool:
    return len(word) <= MAX_WORD_LENGTH and word.isprintable() and RESERVED.isdisjoint(word)


def _alphabet(characters: Counter[str], kind: str, room: int) -> list[str]:
    """Returns the most frequent characters, up to COVERAGE or to `room` entries of pieces."""
    alphabet: list[str] = []
    uncovered = characters.total()
    left_out = uncovered * (1 - COVERAGE)
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        room -= len(_forms(character)) if kind == "wordpiece" else 1
        if room < 0 or uncovered <= left_out:
            break
        alphabet.append(character)
        uncovered -= count
    return alphabet


def _forms(character: str) -> list[str]:
    """Returns the WordPiece entries of a character; punctuation and ideographs are words."""
    if is_punctuation(character) or is_cjk(character):
        return [character]
    return [character, f"##{character}"]


def _train_wordpiece(words: dict[str, int], alphabet: list[str], vocab_size: int) -> bytes:
    """Returns special tokens, the alphabet, then merged pieces in the order of merging."""
    singles = [form for character in sorted(alphabet) for form in _forms(character)]
    longer = {word: n for word, n in words.items() if len(word) > 1}
    merged: list[str] = []
    if longer:
        # Some of the trainer's pieces are not entries: "▁", "▁a", and the characters at its end.
        spare = 3 * len(set().union(*longer)) + 1
        model = _train(
            "bpe",
            longer,
            vocab_size + spare,
            coverage=1.0,
            normalization_rule_name="identity",
            split_by_unicode_script=False,
            split_by_number=False,
            max_sentencepiece_length=32,
        )
        for piece in _pieces(model)[len(SPECIAL_TOKENS) :]:
            if len(piece.removeprefix(SPACE)) > 1:
                merged.append(piece[1:] if piece[0] == SPACE else f"##{piece}")
    entries = [*SPECIAL_TOKENS, *singles, *merged][:vocab_size]
    return "".join(f"{entry}\n" for entry in entries).encode()


def _thin_out(words: dict[str, int]) -> dict[str, int]:
    """Scales the counts down to UNIGRAM_CHARACTERS; a checksum decides how each is rounded."""
    characters = sum(count * (len(word) + 1) for word, count in words.items())
    scale = min(1.0, UNIGRAM_CHARACTERS / characters)
    counts = {w: int(n * scale + _checksum(w)[0] / 2**32) for w, n in words.items()}
    return {word: count for word, count in counts.items() if count}


def _train(
    kind: str, words: dict[str, int], vocab_size: int, coverage: float, **options: Any
) -> bytes:
    """Runs one of SentencePiece's trainers on word counts; returns the bytes of the model."""
    model = io.BytesIO()
    pad, unk, *control = SPECIAL_TOKENS
    order = _by_frequency(words)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(f"{word}\t{words[word]}" for word in order),
        input_format="tsv",
        model_writer=model,
        model_type=kind,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        character_coverage=coverage,
        num_threads=1,
        **dict(pad_id=0, pad_piece=pad, unk_id=1, unk_piece=unk, bos_id=-1, eos_id=-1),
        control_symbols=control,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def _by_frequency(words: Mapping[str, int]) -> list[str]:
    return sorted(words, key=lambda word: (-words[word], word))


def _pieces(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
