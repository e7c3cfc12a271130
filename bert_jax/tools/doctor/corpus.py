"""Whether a text, its documents, the vocabulary and the configuration fit together."""

import itertools
from collections.abc import Iterator
from typing import Any

from bert_jax.config.run import PretrainingConfig
from bert_jax.data.corpus.manifest import Manifest
from bert_jax.tools.doctor import words
from bert_jax.tools.doctor.finding import Finding, in_bytes, note, ok, problem, warning
from bert_jax.tools.doctor.sample import Sample
from bert_jax.tools.doctor.trial import Trial
from bert_jax.training.open import TRAIN, VALIDATION

# Shares of documents, rows or tokens that findings begin at.
_SOME_DUPLICATES, _MANY_DUPLICATES = 0.01, 0.2
_MUCH_PADDING = 0.5
# With B drawn at random for half of the pairs, this share is 0.5; documents of one sentence have no
# next one, so that B is always random.
_MOST_RANDOM = 0.65
_MANY_REPAIRS = 0.01
# Sequences of which a held-out loss is a mean.
_FEW_HELD_OUT = 100
# Tokens of the text for each entry of the vocabulary. BERT: 3.3e9 words and 30,522 entries.
_FEW_TOKENS = 100
# Rows of an embedding table that only pad it, for matrix units.
_PADDING_ROWS = 128
# Characters of a sample that are tokenized again, to name unknown words.
_WORDS_BYTES = 1 << 19


def check(config: PretrainingConfig, trial: Trial) -> Iterator[Finding]:
    """Yields findings about the corpus of a run.

    Args:
      config: of the run.
      trial: has the manifest of the corpus or of its sample.
    """
    assert trial.manifest is not None
    manifest, text = trial.manifest, trial.text
    if text:
        yield from check_text(text)
    else:
        yield from check_prepared(manifest)
    yield from check_vocabulary(config, trial)
    if text:
        tokenizer = trial.run.tokenizer
        counted = words.count(_some_sentences(text), tokenizer)
        yield from words.check(counted, tokenizer, "The text")
    else:
        yield from check_unknown(manifest, config.make_phases(0)[0].sequence_length)
    yield from check_rows(config, trial)
    yield from check_held_out(config, trial)


def check_text(text: Sample) -> Iterator[Finding]:
    """Yields findings about a text that is not prepared."""
    part = "all of it" if text.is_whole else f"its first {text.num_documents:,} documents"
    yield ok(
        f"About {in_bytes(text.text_bytes)} of text are not prepared yet; read: {part},"
        f" {text.num_documents:,} documents, {text.num_sentences:,} sentences; sampled:"
        f" {len(text.documents):,} documents, {in_bytes(text.sample_bytes)}."
    )
    yield from check_duplicates(text.duplicates, text.num_documents)
    repaired = sum(text.repairs.values())
    if repaired:
        listed = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in text.repairs.items())
        what = f"Malformed text: {listed}"
        if repaired > _MANY_REPAIRS * text.num_sentences:
            yield warning(f"{what}.", "docs/data.md lists the policies of config.data.on_bad_text.")
        else:
            yield note(f"{what}; config.data.on_bad_text says what becomes of it.")


def check_duplicates(duplicates: int, documents: int) -> Iterator[Finding]:
    """Yields a finding about documents with the text of another."""
    share = duplicates / max(1, documents)
    what = f"{duplicates:,} of {documents:,} documents ({share:.1%}) repeat the text of another"
    if share > _MANY_DUPLICATES:
        yield warning(f"{what}: the model learns them by heart.", "Remove the repetitions.")
    elif share > _SOME_DUPLICATES:
        yield note(f"{what}; equal documents are never in both splits.")
    else:
        yield ok(f"{what}.")


def check_prepared(manifest: Manifest) -> Iterator[Finding]:
    """Yields findings about prepared data."""
    counts = manifest.content["corpus"]
    yield ok(
        f"Prepared data in {manifest.folder}: {counts['documents']:,} documents,"
        f" {counts['tokens']:,} tokens; the files are intact."
    )
    yield from check_duplicates(counts.get("duplicate_documents", 0), counts["documents"])


def check_vocabulary(config: PretrainingConfig, trial: Trial) -> Iterator[Finding]:
    """Compares the sizes of the vocabulary, of the text and of the embedding table."""
    assert trial.manifest is not None
    entries, rows = len(trial.run.tokenizer.pieces), config.model.vocab_size
    is_trained = config.data.vocab.startswith("train:")
    scale = trial.text.scale if trial.text else 1
    tokens = trial.manifest.content["corpus"]["tokens"] * scale
    of_sample = trial.text is not None and not trial.text.is_whole
    if is_trained and tokens < _FEW_TOKENS * rows:
        fewer = max(64, round(tokens / _FEW_TOKENS, -2))
        yield warning(
            f"config.model.vocab_size={rows:,} is large for a text of about {tokens:,.0f} tokens,"
            f" {tokens / rows:.0f} an entry: rare entries are hardly trained; from"
            f" {_FEW_TOKENS} tokens an entry on there are enough.",
            f"Give more text, or --config.model.vocab_size={fewer:.0f}",
        )
    elif not is_trained and entries + _PADDING_ROWS < rows:
        yield warning(
            f"config.model.vocab_size={rows:,}, but the vocabulary has {entries:,} entries: the"
            " other rows are never used.",
            f"--config.model.vocab_size={entries}",
        )
    else:
        which = "trained on the sample, has" if of_sample and is_trained else "has"
        yield ok(
            f"The vocabulary {which} {entries:,} entries, for about {tokens:,.0f} tokens of text."
        )


def check_unknown(manifest: Manifest, length: int) -> Iterator[Finding]:
    """Yields the unknown tokens of prepared data, whose text is not read again."""
    share = manifest.statistics(TRAIN, length)["unknown_token_share"]
    what = f"{share:.2%} of the tokens of the prepared data are unknown"
    fix = "Prepare with another vocabulary: does it fit the language, and data.lowercase it?"
    if share > words.MOST_UNKNOWN:
        yield problem(f"{what}; the model would learn little but [UNK].", fix)
    elif share > words.MANY_UNKNOWN:
        yield warning(f"{what}; usual is less than 0.1 %.", fix)
    else:
        yield ok(f"{what}.")


def _some_sentences(text: Sample) -> Iterator[str]:
    left = _WORDS_BYTES
    for sentence in itertools.chain.from_iterable(text.documents):
        yield sentence
        left -= len(sentence)
        if left <= 0:
            return


def check_rows(config: PretrainingConfig, trial: Trial) -> Iterator[Finding]:
    """Yields findings about the rows of each length: padding, and pairs without a next sentence."""
    assert trial.manifest is not None
    for phase, rows in zip(trial.run.phases, trial.rows, strict=True):
        length = phase.sequence_length
        found = trial.manifest.statistics(TRAIN, length)
        about = "About " if trial.text else ""
        what = (
            f"{about}{rows:,} sequences of {length} tokens, {found['padding_share']:.0%} of them"
            " padding"
        )
        if found["padding_share"] > _MUCH_PADDING and config.data.max_examples_per_row == 1:
            yield warning(
                f"{what}: documents are short ({found['mean_length']:.0f} tokens a sequence).",
                "Several examples in a row, --config.data.max_examples_per_row=4; or shorter"
                " config.phases; or"
                " --config.data.segments=full_sentences without next sentences.",
            )
        else:
            yield ok(f"{what}.")
    if config.data.segments == "pairs" and config.model.next_sentence:
        length = trial.run.phases[0].sequence_length
        yield from check_pairs(trial.manifest.statistics(TRAIN, length), trial.text)


def check_pairs(statistics: dict[str, Any], text: Sample | None) -> Iterator[Finding]:
    """Yields a finding about next sentences."""
    share = statistics["random_next_share"]
    what = f"In {share:.0%} of the pairs the second text is random; about 50 % is meant"
    if share > _MOST_RANDOM:
        single = f"; {text.single / text.num_documents:.0%} of the documents" if text else ""
        single += " have one sentence" if text else ""
        yield warning(
            f"{what}{single}: such documents have no next sentence.",
            "Put sentences of a document on lines without blank lines between; or train without"
            " next sentences: --config.model.next_sentence=false"
            " --config.data.segments=full_sentences",
        )
    else:
        yield ok(f"{what}.")


def check_held_out(config: PretrainingConfig, trial: Trial) -> Iterator[Finding]:
    """Yields a finding about the held-out split."""
    assert trial.manifest is not None
    share = config.data.validation_share
    if VALIDATION not in trial.manifest.splits:
        yield warning(
            "Nothing is held out (config.data.validation_share=0): no evaluation will say whether"
            " the model learns.",
            "--config.data.validation_share=0.05",
        )
        return
    fewest = min(trial.held_out)
    what = f"About {fewest:,} sequences are held out" if trial.text else f"{fewest:,} are held out"
    if fewest < _FEW_HELD_OUT:
        yield warning(
            f"{what}, too few for a reliable loss: at least {_FEW_HELD_OUT} are.",
            f"--config.data.validation_share={min(0.2, max(0.05, 5 * share)):g}, or more text.",
        )
    else:
        yield ok(f"{what}.")
