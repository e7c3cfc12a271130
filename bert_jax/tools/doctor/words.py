"""Whether a vocabulary fits a text: unknown tokens, and upper and lower case."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator

from bert_jax.text.tokenization import Tokenizer, split_runs
from bert_jax.text.word_tokenizer import WordTokenizer
from bert_jax.tools.doctor.finding import Finding, note, ok, problem, warning

# Shares of unknown tokens. Of English text with its own vocabulary less than 0.1 % are unknown.
# tools/listeners/verdicts.py says the same of the rows of a corpus, above the first of them.
MANY_UNKNOWN, MOST_UNKNOWN = 0.02, 0.2
# A vocabulary of whole words leaves out rare ones; ELMo reads their characters.
_MANY_UNKNOWN_WORDS = 0.1
# Of the pieces of a vocabulary with letters that have an upper-case one. The released BERTs: 0 of
# the uncased one, 32 % of the cased one.
_CASED = 0.01
# Of the letters of a text. In English prose some 3 % are upper case.
_CAPITALS = 0.005
_SHOWN = 6


@dataclasses.dataclass(frozen=True)
class Words:
    """What a tokenizer makes of a text.

    Attributes:
      tokens, unknown: counts of tokens.
      letters, capitals: counts of characters, those without case left out.
      examples: runs of text with an unknown token, the most frequent first.
    """

    tokens: int
    unknown: int
    letters: int
    capitals: int
    examples: tuple[str, ...]

    @property
    def unknown_share(self) -> float:
        return self.unknown / max(1, self.tokens)

    @property
    def has_capitals(self) -> bool:
        return self.capitals > _CAPITALS * max(1, self.letters)


def count(texts: Iterable[str], tokenizer: Tokenizer) -> Words:
    """Returns what a tokenizer makes of texts; it is not changed, but that it may grow."""
    sums, strange = Counter(), Counter()
    for text in texts:
        sums["capitals"] += sum(map(str.isupper, text))
        sums["small"] += sum(map(str.islower, text))
        ids = tokenizer.encode(text)
        sums["tokens"] += len(ids)
        if unknown := ids.count(tokenizer.unk_id):
            sums["unknown"] += unknown
            strange.update(run for run in split_runs(text) if _is_unknown(run, tokenizer))
    examples = tuple(run[:40] for run, _ in strange.most_common(_SHOWN))
    letters = sums["capitals"] + sums["small"]
    return Words(sums["tokens"], sums["unknown"], letters, sums["capitals"], examples)


def _is_unknown(run: str, tokenizer: Tokenizer) -> bool:
    return tokenizer.unk_id in tokenizer.encode(run)


def check(words: Words, tokenizer: Tokenizer, where: str) -> Iterator[Finding]:
    """Yields findings about unknown tokens and case.

    Args:
      words: of a text.
      tokenizer: that they were counted with.
      where: how findings name the text.
    """
    case = list(check_case(words, tokenizer, where))
    yield from case
    share = words.unknown_share
    shown = f", such as {', '.join(map(repr, words.examples))}" if words.examples else ""
    what = f"{where}: {share:.2%} of {words.tokens:,} tokens are unknown"
    many = _MANY_UNKNOWN_WORDS if isinstance(tokenizer, WordTokenizer) else MANY_UNKNOWN
    fix = (
        "Fix the casing mismatch first, see above."
        if any(finding.level in ("warning", "problem") for finding in case)
        else "Take a vocabulary of this language and kind of text (config.data.vocab, or another"
        " config.init_from), or train one on the text: --config.data.vocab=train:wordpiece."
    )
    if share > MOST_UNKNOWN:
        yield problem(f"{what}{shown}; the model would learn little but [UNK].", fix)
    elif share > many:
        yield warning(f"{what}{shown}; usual is less than 0.1 %.", fix)
    else:
        yield ok(f"{what}.")


def check_case(words: Words, tokenizer: Tokenizer, where: str) -> Iterator[Finding]:
    """Yields findings about the case of a text, of a vocabulary and of config.data.lowercase."""
    cased = is_cased(tokenizer.pieces)
    if cased and tokenizer.lowercase:
        yield warning(
            "config.data.lowercase=True, but the vocabulary has words with capitals, which no text"
            " reaches then.",
            "--config.data.lowercase=false",
        )
    elif not cased and not tokenizer.lowercase and words.has_capitals:
        yield warning(
            f"config.data.lowercase=False, but the vocabulary has no capitals, and"
            f" {words.capitals / words.letters:.1%} of the letters of {where} are capitals.",
            "--config.data.lowercase=true",
        )
    elif cased and words.letters and not words.has_capitals:
        yield note(
            f"{where}: the text is in lower case, and the vocabulary has words with capitals.",
            "A vocabulary without capitals has more words of this text.",
        )


def is_cased(pieces: Iterable[str]) -> bool:
    """Returns whether the pieces of a vocabulary have capitals; [CLS] and <S> do not count."""
    words = [piece for piece in pieces if any(map(str.isalpha, piece)) and piece[0] not in "[<"]
    capitals = sum(any(map(str.isupper, word)) for word in words)
    return capitals > _CASED * max(1, len(words))
