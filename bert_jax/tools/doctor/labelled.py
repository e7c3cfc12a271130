"""Whether labelled files, their splits, labels and texts fit together and fit the vocabulary."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax.text.tokenization import Tokenizer
from bert_jax.tools.doctor import words
from bert_jax.tools.doctor.finding import Finding, listed, note, ok, problem, warning
from bert_jax.tools.doctor.labelled_files import File, class_names, content, has, label, texts

# Shares of examples that findings begin at.
_SOME, _MANY = 0.01, 0.1
# Of a leak: the evaluation measures what was learned by heart.
_MOST_LEAKS = 0.5
# The share of the most frequent label from which accuracy says little.
_ONE_SIDED = 0.9
# Distinct labels up to which all are listed, and their examples compared.
_MOST_LABELS = 50
_FEW_EXAMPLES = 30
# A reader's counts that mean a loss, and what to do.
_COSTS = {
    "mixed_scheme_files": "Some entities begin with B-, others with I-: correct the tags.",
    "broken_entities": "Correct the tags: E- and S- end an entity that has a beginning.",
    "questions_not_found": "Correct the offsets and the texts of the answers (answer_start).",
    "rows_left_out": "Correct the rows, or give their column with config.data.label.",
    "broken_rows": "Rows have fewer columns than the header: quote tabs and newlines in cells.",
    "empty_texts": "Remove the examples without text.",
}


def check(files: Sequence[File], is_classes: bool) -> Iterator[Finding]:
    """Yields findings about files, their labels and what they have in common.

    Args:
      files: that could be read; that to train on is `train`.
      is_classes: whether labels are classes or tags, rather than numbers or places.
    """
    for file in files:
        yield from check_file(file, is_classes)
    by_name = {file.name: file for file in files}
    if train := by_name.get("train"):
        yield from check_repetitions(train)
        for file in files:
            if file is not train:
                if is_classes:
                    yield from check_same_classes(train, file)
                yield from check_leak(train, file)
                yield from check_schemes(train, file)


def check_file(file: File, is_classes: bool) -> Iterator[Finding]:
    """Yields findings about one file: its classes, and what its reader repaired."""
    number = len(file.examples)
    counted = Counter(name for example in file.examples for name in class_names(example))
    if is_classes and counted:
        yield from check_classes(file, counted)
    else:
        yield ok(f"{file.title}: {number:,} examples.")
    if number < _FEW_EXAMPLES:
        yield warning(
            f"{file.title} has {number:,} examples: "
            + ("too few to learn from." if file.name == "train" else "its score is a guess."),
            f"Give more; at least {_FEW_EXAMPLES}.",
        )
    for name, count in file.counts.items():
        what = f"{file.title}: {count:,} {name.replace('_', ' ')}"
        if count and name in _COSTS:
            yield warning(f"{what}.", _COSTS[name])
    impossible = sum(getattr(example, "is_impossible", False) for example in file.examples)
    if impossible:
        yield note(f"{file.title}: {impossible:,} of {number:,} questions have no answer.")


def check_classes(file: File, counted: Counter[str]) -> Iterator[Finding]:
    """Yields findings about the classes of a file.

    Args:
      file: it.
      counted: how often each class is in it.
    """
    total = counted.total()
    shown = ", ".join(
        f"{name} {count:,} ({count / total:.0%})" for name, count in counted.most_common(10)
    )
    more = f" and {len(counted) - 10} more" if len(counted) > 10 else ""
    what = f"{file.title}: {len(file.examples):,} examples; {shown}{more}"
    name, most = counted.most_common(1)[0]
    is_tags = any(has(example, "tags") for example in file.examples[:1])
    if len(counted) == 1:
        fix = "Give examples of all classes: is config.data.label the right column?"
        if file.name == "train":
            yield problem(f"{what}: a single class, so there is nothing to learn.", fix)
        else:
            yield warning(f"{what}: a single class, so a constant answer is right.", fix)
    elif most > _ONE_SIDED * total and not is_tags:
        yield warning(
            f"{what}: always saying {name!r} is right for {most / total:.0%}.",
            "Judge by macro_f1 or matthews, not by accuracy:"
            " --config.metrics=\"('macro_f1',)\" --config.checkpoint.best_metric=macro_f1",
        )
    else:
        yield ok(f"{what}.")


def check_same_classes(train: File, file: File) -> Iterator[Finding]:
    """Yields findings about classes that only one of two files has."""
    in_train, in_file = (_all_classes(f) for f in (train, file))
    only = unknown_classes(train, file)
    if only:
        yield problem(
            f"{file.title} has the labels {listed(only)}, which train lacks:"
            " no model can predict them.",
            "Add such examples to the training file, or remove them; another spelling?",
        )
    if (unseen := in_train - in_file) and len(in_train) <= _MOST_LABELS:
        yield note(f"{file.title} lacks the labels {listed(unseen)}: they are not evaluated.")


def unknown_classes(train: File, file: File) -> set[str]:
    """Returns the classes of a file that no model of the training file has: an error there.

    A type of entities has both of its tags if the training file has one (Labels.find_tags).
    """
    in_train = _all_classes(train)
    kinds = {name[2:] for name in in_train if name[:2] in ("B-", "I-")}
    unknown = _all_classes(file) - in_train
    return {n for n in unknown if not (n[:2] in ("B-", "I-") and n[2:] in kinds)}


def _all_classes(file: File) -> set[str]:
    return {name for example in file.examples for name in class_names(example)}


def check_repetitions(train: File) -> Iterator[Finding]:
    """Yields findings about examples that are in the training file more than once."""
    labels: dict[Any, set[Any]] = {}
    for example in train.examples:
        labels.setdefault(content(example), set()).add(label(example))
    number = len(train.examples)
    if contradictions := sum(len(found) > 1 for found in labels.values()):
        what = (
            f"{train.title}: {contradictions:,} texts are there several times with different labels"
        )
        if contradictions > _SOME * number:
            yield warning(f"{what}.", "Decide for one label, or remove them.")
        else:
            yield note(f"{what}.")
    repeated = number - len(labels)
    what = f"{train.title}: {repeated:,} of {number:,} examples repeat another"
    if repeated > _MANY * number:
        yield warning(f"{what}; they have more weight than others.", "Remove the repetitions.")
    elif repeated > _SOME * number:
        yield note(f"{what}.")


def check_leak(train: File, file: File) -> Iterator[Finding]:
    """Yields findings about examples of an evaluation that are trained on, by their content."""
    seen = {content(example) for example in train.examples}
    leaks = [example for example in file.examples if content(example) in seen]
    share = len(leaks) / len(file.examples)
    what = (
        f"{len(leaks):,} of {len(file.examples):,} examples of {file.title} ({share:.1%}) are in"
        " train too"
    )
    first = f", the first at {leaks[0].where}" if leaks else ""
    fix = "Remove them from the training file."
    if share > _MOST_LEAKS:
        yield problem(f"{what}{first}: its score would say nothing about new texts.", fix)
    elif share > _SOME:
        yield warning(f"{what}{first}: its score would be too high.", fix)
    elif leaks:
        yield note(f"{what}{first}.", fix)
    else:
        yield ok(f"No example of {file.title} is in train.")
    contexts = {c for e in train.examples if (c := getattr(e, "context", ""))}
    new = (example for example in file.examples if content(example) not in seen)
    if shared := sum(getattr(example, "context", None) in contexts for example in new):
        yield warning(
            f"{shared:,} questions of {file.title} are about a context that train has too.",
            "Split the files by articles.",
        )


def check_schemes(train: File, file: File) -> Iterator[Finding]:
    """Yields a finding about files whose tags are of different schemes."""
    names = ("iob1_files", "iob2_files", "iobes_files", "mixed_scheme_files")
    schemes = [{n.split("_")[0].upper() for n in names if f.counts[n]} for f in (train, file)]
    if schemes[0] != schemes[1]:
        yield note(
            f"The tags of train are {listed(schemes[0])}, those of {file.name}"
            f" {listed(schemes[1])}: all are read as IOB2."
        )


def check_words(
    files: Sequence[File], tokenizer: Tokenizer, most_texts: int = 5000
) -> Iterator[Finding]:
    """Yields findings about unknown tokens and case in the first texts of each file."""
    for file in files:
        found = (text for example in file.examples[:most_texts] for text in texts(example))
        yield from words.check(words.count(found, tokenizer), tokenizer, file.name)


def check_lengths(
    counts: Mapping[str, int], examples: int, name: str, longest: int, most: int
) -> Iterator[Finding]:
    """Yields a finding about examples that are longer than a row.

    Args:
      counts: of the encoder.
      examples: their number.
      name: of the file.
      longest: tokens of a row, at most.
      most: tokens that the model can read.
    """
    cut = sum(counts.get(n, 0) for n in ("texts_truncated", "words_truncated"))
    cut += min(examples, counts.get("choices_truncated", 0))
    what = f"{cut:,} of {examples:,} examples of {name} are longer than {longest} tokens, and cut"
    if cut > _MANY * examples:
        longer = min(most, 2 * longest)
        yield warning(
            f"{what}; {counts.get('tokens_cut_off', 0):,} tokens are lost.",
            f"--config.max_length={longer}"
            if longer > longest
            else "The model reads no longer ones: shorten or split the texts.",
        )
    else:
        yield ok(f"{what}.")
    lost = counts.get("questions_not_learned", 0)
    if lost > _SOME * examples:
        yield warning(
            f"{lost:,} of {examples:,} questions of {name} have no answer in their text, and are"
            " not trained on.",
            "Correct answers and offsets.",
        )
