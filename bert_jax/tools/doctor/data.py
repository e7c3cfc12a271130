"""Checks whether a corpus or labelled files, their vocabulary and their recipe can be right."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bert_jax.config.finetuning import FinetuningConfig
from bert_jax.config.run import PretrainingConfig, RunConfig
from bert_jax.data.corpus.prepare import TRAIN, VALIDATION
from bert_jax.data.labelled.labelled_rows import LabelledRows
from bert_jax.plans.recipe import finetuning_recipe
from bert_jax.text.tokenization import Tokenizer, split_runs
from bert_jax.text.word_tokenizer import WordTokenizer
from bert_jax.tools.doctor.finding import Finding, in_bytes, note, ok, problem, warning
from bert_jax.tools.doctor.trial import Trial
from bert_jax.training.run import Run

# Shares of unknown tokens. In English text with its own vocabulary, less than 0.1 % are unknown.
# A vocabulary of whole words leaves out rare ones; ELMo reads their characters.
_MANY_UNKNOWN, _MANY_UNKNOWN_WORDS, _MAX_UNKNOWN = 0.02, 0.1, 0.2
# Texts of a file or sentences of a sample that are tokenized to find unknown tokens.
_MAX_TEXTS = 5000
# Share of a vocabulary's pieces with letters that have an upper-case one. In the released BERTs: 0
# for the uncased one, 32 % for the cased one.
_CASED = 0.01
# With B drawn at random for half of the pairs, this share is 0.5; documents of one sentence have no
# next one, so that B is always random.
_MAX_RANDOM = 0.65
# Share of training texts with several labels at which a warning begins.
_CONTRADICTIONS = 0.01
# Share of the texts that are cut off, likewise.
_CUT = 0.01
# Share of leaked texts: above it, the evaluation measures what was memorized.
_MAX_LEAKS = 0.5
# Difference of a label's shares in two files that counts, also in standard errors.
_OTHER_SHARE, _STANDARD_ERRORS = 0.1, 4
# Learning rates that differ by more than this factor are far apart.
_FAR = 3
# Counts of the readers that mean lost data, and what to do.
_FAULTS = {
    "mixed_scheme_files": "Some entities begin with B-, others with I-: correct the tags.",
    "broken_entities": "Correct the tags: E- and S- end an entity that has a beginning.",
    "numbered_words": "If each is a character and its number in a word, as in Weibo's files:"
    " --config.task.strip_numbers=true.",
    "questions_not_found": "Correct the offsets and the texts of the answers (answer_start).",
    "rows_left_out": "Correct the rows, or give their column with config.task.label.",
    "broken_rows": "Rows have fewer columns than the header: quote tabs and newlines in cells.",
    "empty_texts": "Remove the examples without text.",
}
# Fields of an example (data/labelled/examples.py) that are its label, and those that only name it.
_LABELS = {"labels", "tags", "label", "answers", "is_impossible"}
_NAMES = {"where", "id", "document"}


def check_corpus(config: PretrainingConfig, trial: Trial) -> Iterator[Finding]:
    """Yields findings about a prepared corpus, or about the sample of one.

    Args:
      config: the run's configuration.
      trial: has the manifest of the corpus or of its sample.
    """
    manifest = trial.manifest
    assert manifest is not None
    counts, about = manifest.content["corpus"], "about " if trial.sample else ""
    if trial.sample:
        yield ok(
            f"About {in_bytes(trial.text_bytes)} of text are not prepared yet; sampled:"
            f" {len(trial.sample):,} documents, {counts['tokens']:,} tokens."
        )
    else:
        yield ok(
            f"Prepared data in {manifest.folder}: {counts['documents']:,} documents,"
            f" {counts['tokens']:,} tokens; the files are intact."
        )
    sentences = itertools.chain.from_iterable(trial.sample)
    share = counts["unknown_token_share"]
    yield from check_vocabulary(trial.run.tokenizer, share, "The text", sentences)
    for phase, rows, held_out in zip(trial.run.phases, trial.rows, trial.held_out, strict=True):
        padding = manifest.statistics(TRAIN, phase.sequence_length)["padding_share"]
        yield ok(
            f"Sequences of {phase.sequence_length} tokens: {about}{rows:,} to train on,"
            f" {padding:.0%} of them padding; {about}{held_out:,} held out."
        )
    if VALIDATION not in manifest.splits and not config.data.held_out:
        yield warning(
            "Nothing is held out (config.data.validation_share=0): no evaluation will say whether"
            " the model learns.",
            "--config.data.validation_share=0.05",
        )
    if config.data.segments == "pairs" and config.model.next_sentence:
        statistics = manifest.statistics(TRAIN, trial.run.phases[0].sequence_length)
        if (share := statistics["random_next_share"]) > _MAX_RANDOM:
            yield warning(
                f"In {share:.0%} of the pairs the second text is random; about 50 % is meant:"
                " documents of one sentence have no next one.",
                "Put sentences of a document on lines without blank lines between; or train without"
                " next sentences: --config.model.next_sentence=false"
                " --config.data.segments=full_sentences",
            )


def check_vocabulary(
    tokenizer: Tokenizer, share: float, where: str, texts: Iterable[str] = ()
) -> Iterator[Finding]:
    """Yields findings about unknown tokens, and the case of a vocabulary.

    Args:
      tokenizer: tokenizer of the vocabulary.
      share: share of unknown tokens.
      where: name of the text in findings.
      texts: texts whose first _MAX_TEXTS are searched for unknown words.
    """
    # [CLS] and <S> have no case.
    words = [p for p in tokenizer.pieces if any(map(str.isalpha, p)) and p[0] not in "[<"]
    cased = sum(any(map(str.isupper, word)) for word in words) > _CASED * max(1, len(words))
    if cased and tokenizer.lowercase:
        yield warning(
            "config.data.lowercase=True, but the vocabulary has words with capitals, which no text"
            " reaches then.",
            "--config.data.lowercase=false",
        )
    what = f"{where}: {share:.2%} of the tokens are unknown"
    many = _MANY_UNKNOWN_WORDS if isinstance(tokenizer, WordTokenizer) else _MANY_UNKNOWN
    if share <= many:
        yield ok(f"{what}.")
        return
    runs = (run for text in itertools.islice(texts, _MAX_TEXTS) for run in split_runs(text))
    unknown = Counter(run[:40] for run in runs if tokenizer.unk_id in tokenizer.encode(run))
    if unknown:
        what += f", such as {', '.join(repr(run) for run, _ in unknown.most_common(6))}"
    capitals = sum(any(map(str.isupper, run)) for run in unknown)
    if not (cased or tokenizer.lowercase) and capitals > len(unknown) / 2:
        what += "; the vocabulary has no capitals, and config.data.lowercase=False"
        fix = "--config.data.lowercase=true"
    else:
        fix = (
            "Take a vocabulary of this language and kind of text (config.data.vocab, or another"
            " config.init_from), or train one on the text: --config.data.vocab=train:wordpiece."
        )
    if share > _MAX_UNKNOWN:
        yield problem(f"{what}; the model would learn little but [UNK].", fix)
    else:
        yield warning(f"{what}; usual is less than 0.1 %.", fix)


# ------------------------------------------------------------------ labelled files


def check_labelled(run: Run) -> Iterator[Finding]:
    """Yields findings about labelled files, their labels and what they have in common."""
    files = (*run.training, *run.evaluation[0])
    train, *evaluated = (rows for rows in files if isinstance(rows, LabelledRows))
    for rows in (train, *evaluated):
        yield from check_file(rows, run.tokenizer)
    labels: dict[Any, set[Any]] = {}
    for example in train.examples:
        labels.setdefault(_content(example), set()).add(_label(example))
    number = len(train.examples)
    if (contradictions := sum(len(of) > 1 for of in labels.values())) > _CONTRADICTIONS * number:
        yield warning(
            f"train: {contradictions:,} texts are there several times with different labels.",
            "Decide for one label, or remove them.",
        )
    contexts = {c for e in train.examples if (c := getattr(e, "context", ""))}
    for rows in evaluated:
        new = [example for example in rows.examples if _content(example) not in labels]
        count, leaks = len(rows.examples), len(rows.examples) - len(new)
        share = leaks / max(1, count)
        what = f"{leaks:,} of {count:,} examples of {rows.name} ({share:.1%}) are in train"
        fix = "Remove them from the training file."
        if not leaks:
            yield ok(f"No example of {rows.name} is in train.")
        elif share > _MAX_LEAKS:
            yield problem(f"{what}: its score would say nothing about new texts.", fix)
        else:
            yield warning(f"{what}: its score would be too high.", fix)
        if shared := sum(getattr(example, "context", None) in contexts for example in new):
            yield warning(
                f"{shared:,} questions of {rows.name} are about a context that train has too.",
                "Split the files by articles.",
            )
        weighting = run.config.get("task.weighting")
        if weighting and not run.config.task.reads_numbers:
            examples = train.examples, rows.examples
            yield from _compare_shares(*examples, rows.name, adjusts=weighting == "logits")


def _compare_shares(
    train: Sequence[Any], evaluated: Sequence[Any], name: str, adjusts: bool
) -> Iterator[Finding]:
    """Reports if a label's share in an evaluation file differs from that in the training file.

    A difference counts above `_OTHER_SHARE` and `_STANDARD_ERRORS` of the two-proportion z-test.

    Args:
      train: examples of the training file.
      evaluated: examples of the evaluation file.
      name: name of the evaluation file.
      adjusts: whether the logits are adjusted by the shares of the training file.
    """
    of_train, of_eval = map(_label_counts, (train, evaluated))
    found = []
    for label in sorted(of_train | of_eval):
        shares = of_train[label] / len(train), of_eval[label] / len(evaluated)
        pooled = (of_train[label] + of_eval[label]) / (len(train) + len(evaluated))
        error = math.sqrt(pooled * (1 - pooled) * (1 / len(train) + 1 / len(evaluated)))
        if (gap := abs(shares[0] - shares[1])) > max(_OTHER_SHARE, _STANDARD_ERRORS * error):
            found.append((gap, label, shares))
    if found:
        _, label, (share, other) = max(found)
        what = f"{share:.1%} of train, but {other:.1%} of {name}, have the label {label!r}"
        if adjusts:
            yield note(
                f"{what}: the model decides as if all labels were equally frequent.",
                "Where texts to come have the shares of train: --config.task.class_weights=none"
                " --config.task.weighting=loss",
            )
            return
        yield warning(
            f"{what}: a model learns to decide by the shares of train.",
            "Let both files have the shares of the texts to come. If train cannot:"
            " --config.task.class_weights=auto --config.task.weighting=logits decides as if all"
            " labels were equally frequent.",
        )


def _label_counts(examples: Iterable[Any]) -> Counter[str]:
    """Returns the number of examples with each label; nothing for tags, numbers and questions."""
    return Counter(name for e in examples for name in set(getattr(e, "labels", None) or ()))


def check_rate(config: RunConfig) -> Iterator[Finding]:
    """Compares the learning rate of a fine-tuning with `finetune`'s choice for the encoder."""
    recipe = finetuning_recipe(config.model.to_dict(), 1, pools=False)
    if not isinstance(config, FinetuningConfig) or "optimizer.learning_rate" not in recipe:
        return
    usual, reason = recipe["optimizer.learning_rate"]
    rate = config.optimizer.learning_rate
    if not usual / _FAR <= rate <= usual * _FAR:
        yield warning(
            f"config.optimizer.learning_rate={rate:g} is far from {usual:g}, for {reason}.",
            f"--config.optimizer.learning_rate={usual:g}, or the command finetune.",
        )


def check_file(rows: LabelledRows, tokenizer: Tokenizer) -> Iterator[Finding]:
    """Yields findings about one file: its labels, unknown tokens, and what its reader repaired."""
    title = f"{rows.name} ({rows.source})"
    yield ok(f"{title}: {len(rows.examples):,} examples.")
    if len(golds := {gold for example in rows.examples for gold in _golds(example)}) == 1:
        what = f"{title}: all examples have the same label {golds.pop()!r}"
        fix = "Give examples of all classes: is config.task.label the right column?"
        if rows.name == "train":
            yield problem(f"{what}, so there is nothing to learn.", fix)
        else:
            yield warning(f"{what}, so a constant answer is right.", fix)
    for name, count in rows.counts.items():
        if name in _FAULTS:
            yield warning(f"{title}: {count:,} {name.replace('_', ' ')}.", _FAULTS[name])
    if (cut := rows.counts.get("texts_truncated", 0)) > _CUT * len(rows.examples):
        tokens = rows.counts["tokens_cut_off"]
        yield warning(
            f"{title}: {cut:,} texts are cut off, {tokens:,} tokens of them.",
            "Read them in windows, --config.task.long_texts=windows, or set a larger"
            " --config.max_length.",
        )
    texts = [text for example in rows.examples[:_MAX_TEXTS] for text in _texts(example)]
    ids = list(itertools.chain.from_iterable(map(tokenizer.encode, texts)))
    share = ids.count(tokenizer.unk_id) / max(1, len(ids))
    yield from check_vocabulary(tokenizer, share, rows.name, texts)


def _values(example: Any, chosen: Iterable[str]) -> tuple[Any, ...]:
    return tuple(getattr(example, f.name) for f in dataclasses.fields(example) if f.name in chosen)


def _label(example: Any) -> tuple[Any, ...]:
    return _values(example, _LABELS)


def _golds(example: Any) -> Iterable[Any]:
    """Returns the tags of an example, or its label as one value; () if it has none."""
    label = _label(example)
    return getattr(example, "tags", None) or (() if label == (None,) else (label,))


def _content(example: Any) -> tuple[Any, ...]:
    """Returns what an example is about: its texts and words, without its names and labels."""
    names = {field.name for field in dataclasses.fields(example)}
    return _values(example, names - _NAMES - _LABELS)


def _texts(example: Any) -> Iterator[str]:
    for value in _content(example):
        if value:
            yield value if isinstance(value, str) else " ".join(value)
