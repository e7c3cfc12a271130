"""Published sets of texts and pairs: GLUE's nine tasks and its diagnostic set, and Chinese sets.

The formats of their files are described by values: the columns, whether there is a header, the
spelling of labels. A few rows of QQP are malformed (a question continues in the next line); as in
published scores, they are left out, and counted.
"""

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bert_jax.data.labelled.cells import number_of
from bert_jax.data.labelled.examples import TextExample
from bert_jax.data.labelled.table_rows import first_row
from bert_jax.data.labelled.tables import Columns, read_table
from bert_jax.files.errors import UserError
from bert_jax.text.arrow_tables import is_table


@dataclass(frozen=True)
class TextTask:
    """A published set.

    Attributes:
      columns: sets of columns; the first set that the first line of a file has is read.
      test_columns: columns of files without labels, if they differ.
      tfds: columns of its dataset in tensorflow-datasets, and of Hugging Face's, if it has one.
      labels: labels in the order of their numbers; empty: a regression.
      aliases: other spellings of labels in files -> label.
      submissions: split -> name of the file to submit.
      limits: limits of a regression's numbers.
    """

    columns: tuple[Columns, ...]
    test_columns: tuple[Columns, ...] = ()
    tfds: Columns | None = None
    labels: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)
    submissions: dict[str, str] = field(default_factory=dict)
    limits: tuple[float, float] | None = None

    @property
    def is_regression(self) -> bool:
        return self.limits is not None

    def read(self, source: str, counts: Counter, labelled: bool = True) -> Iterator[TextExample]:
        """Streams the examples of one of the set's files, or of `tfds:NAME[SPLIT]`.

        Raises:
          UserError: naming the line, for missing columns or an unknown label.
        """
        if source.startswith("tfds:") or is_table(source):  # the same columns
            if self.tfds is None:
                raise UserError(f"{source}: this set is read from its published files only.")
            columns = self.tfds
        else:
            columns = self._columns(source, labelled)
        as_published = {"leave_out_broken_rows": True, "on_missing": "keep"}
        examples = read_table(source, columns, counts, labelled, **as_published)
        return map(self._known, examples) if labelled else examples

    def _columns(self, path: str, labelled: bool) -> Columns:
        if not os.path.isfile(path):
            raise UserError(f"{path}: there is no such file.")
        choices = self.columns if labelled else (*self.test_columns, *self.columns)
        header = first_row(path)
        names = {*(name.strip() for name in header), *range(len(header))}
        for columns in choices:
            if names.issuperset(columns.names(labelled)):
                # GLUE's files have their own column of ids in some splits only.
                ids = [name for name in ("index", "id") if name in names and columns.has_header]
                return dataclasses.replace(columns, id=ids[0] if ids else None)
        expected = " or ".join(str(list(columns.names(labelled))) for columns in choices)
        raise UserError(f"{path}, line 1: no columns {expected}; it has {header}.")

    def _known(self, example: TextExample) -> TextExample:
        assert example.labels is not None
        label = self.aliases.get(example.labels[0], example.labels[0])
        if self.limits is not None:
            low, high = self.limits
            if not low <= number_of(label) <= high:
                raise UserError(f"{example.where}: {label!r} is not a number from {low} to {high}.")
        elif label not in self.labels:
            known = ", ".join((*self.labels, *self.aliases))
            raise UserError(f"{example.where}: unknown label {label!r}. Available: {known}.")
        return dataclasses.replace(example, labels=(label,))


def _glue(
    file: str, *columns: Columns, labels: tuple[str, ...], numbered: bool = False, **fields: Any
) -> TextTask:
    """Returns a set of GLUE; without `tfds`, its dataset has the first of its files' `columns`.

    `file` is the name of test predictions that gluebenchmark.com takes; `labels` are in the order
    of tensorflow-datasets, and numbered in the files with `numbered`.
    """
    return TextTask(
        columns=columns,
        labels=labels,
        aliases=_numbers(labels) if numbered else {},
        **{"tfds": columns[0], "submissions": {"test": file}} | fields,
    )


def _numbers(labels: tuple[str, ...]) -> dict[str, str]:
    return {str(number): label for number, label in enumerate(labels)}


def _pair(text_a: str, text_b: str, label: str = "label") -> Columns:
    return Columns(text_a, text_b, label)


_SENTENCE, _SENTENCES = Columns("sentence", label="label"), _pair("sentence1", "sentence2")
_SENTIMENT = ("negative", "positive")
_DUPLICATE = ("not_duplicate", "duplicate")
_INFERENCE = ("entailment", "neutral", "contradiction")
_ENTAILMENT = ("entailment", "not_entailment")

# train.tsv has label1 before gold_label, the others label1 to label5; the labels of the diagnostic
# set are in diagnostic-full.tsv.
_MNLI = (_pair("sentence1", "sentence2", "gold_label"), _pair("Premise", "Hypothesis", "Label"))
_MNLI_TFDS = _pair("premise", "hypothesis")

GLUE: dict[str, TextTask] = {
    "cola": _glue(
        "CoLA.tsv",
        _SENTENCE,
        # No header, except in the test file: source, label, the author's mark, sentence.
        Columns(3, label=1),
        test_columns=(Columns("sentence"),),
        labels=("unacceptable", "acceptable"),
        numbered=True,
    ),
    "sst2": _glue("SST-2.tsv", _SENTENCE, labels=_SENTIMENT, numbered=True),
    "mrpc": _glue(
        "MRPC.tsv",
        _pair("#1 String", "#2 String", "Quality"),
        tfds=_SENTENCES,
        labels=("not_equivalent", "equivalent"),
        numbered=True,
    ),
    "qqp": _glue(
        "QQP.tsv",
        _pair("question1", "question2", "is_duplicate"),
        tfds=_pair("question1", "question2"),
        labels=_DUPLICATE,
        numbered=True,
    ),
    "stsb": _glue(
        "STS-B.tsv",
        _pair("sentence1", "sentence2", "score"),
        tfds=_SENTENCES,
        labels=(),
        limits=(0.0, 5.0),
    ),
    "mnli": _glue(
        "",
        *_MNLI,
        tfds=_MNLI_TFDS,
        labels=_INFERENCE,
        submissions={
            "test_matched": "MNLI-m.tsv",
            "test_mismatched": "MNLI-mm.tsv",
            "test_diagnostic": "AX.tsv",
        },
    ),
    "qnli": _glue("QNLI.tsv", _pair("question", "sentence"), labels=_ENTAILMENT),
    "rte": _glue("RTE.tsv", _SENTENCES, labels=_ENTAILMENT),
    "wnli": _glue("WNLI.tsv", _SENTENCES, labels=_ENTAILMENT[::-1], numbered=True),
    # The diagnostic set, predicted by a model trained on MNLI.
    "ax": _glue("AX.tsv", _SENTENCES, *_MNLI, tfds=_MNLI_TFDS, labels=_INFERENCE),
}

CHINESE: dict[str, TextTask] = {
    # Training data: MNLI in translation; xnli.dev.tsv and xnli.test.tsv have all 15 languages.
    "xnli": TextTask(
        columns=(
            _pair("premise", "hypo"),
            Columns("sentence1", "sentence2", "gold_label", keep=("language", "zh")),
            _pair("text_a", "text_b"),
        ),
        labels=_INFERENCE,
        aliases={"contradictory": "contradiction"},
    ),
    "chnsenticorp": TextTask(
        columns=(Columns("text_a", label="label"), Columns(1, label=0)),
        labels=_SENTIMENT,
        aliases=_numbers(_SENTIMENT),
    ),
    "lcqmc": TextTask(
        columns=(_pair("text_a", "text_b"), Columns(0, 1, 2)),
        labels=_DUPLICATE,
        aliases=_numbers(_DUPLICATE),
    ),
}
