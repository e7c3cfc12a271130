"""How inputs of requests become examples, and the forms of the page that make them.

A task says which class its examples have (`Task.EXAMPLE`), and nothing here knows tasks by name.
"""

import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bert_jax.config.run import RunConfig
from bert_jax.data.labelled.examples import (
    ChoiceExample,
    Example,
    Question,
    TaggedExample,
    TextExample,
    split_words,
)
from bert_jax.data.labelled.texts import Text, spell_masks
from bert_jax.files.errors import UserError
from bert_jax.tasks.task import Task
from bert_jax.tools.serve.requests import Field

MAX_MASKS = 8
MAX_ENDINGS = 8
# Samples of a form from the evaluation file, and the longest that is shown if others are shorter.
_SAMPLES, _SAMPLE_CHARACTERS = 3, 600
Values = Mapping[str, Any]


@dataclass(frozen=True)
class View:
    """A form of the page.

    Attributes:
      title: name of its tab.
      note: a sentence that says what it shows.
      fields: its controls.
      samples: values of the fields to try.
      drawing: what the script that draws the answer needs to know.
    """

    title: str
    note: str
    fields: tuple[Field, ...]
    samples: tuple[Values, ...]
    drawing: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Form:
    """How inputs become examples.

    Attributes:
      fields: the fields of an input, the longest text first.
      make: (values of an input, its place for messages) -> example; raises UserError.
      views: the forms of the page, which may ask for more than the API does.
      columns: `Task.column_inputs`, further names of the fields.
    """

    fields: tuple[Field, ...]
    make: Callable[[Values, str], Any]
    views: tuple[View, ...]
    columns: Mapping[str, str] = field(default_factory=dict)


_numbers = itertools.count()
TEXT, PAIR = Field("text_a", "Text"), Field("text_b", "Second text", optional=True)
# The controls of a form that needs two texts.
_BOTH = Field("text_a", "First text"), Field("text_b", "Second text")
SENTENCES = (
    "The cat sat on the mat.",
    "A kitten was sitting on a rug.",
    "The function returns a list of strings.",
)


CONTINUATION = View(
    "Continue",
    "The text with the most probable words after it.",
    (Field("text_a", "Beginning of a text"),),
    ({"text_a": "The function returns"}, {"text_a": "Once upon a time"}),
)
SIMILARITY = View(
    "Similarity",
    "Cosine similarity of texts, whose vectors are means of hidden states.",
    (Field("text_a", "Texts", "two or more, one per line", rows=4, is_list=True),),
    ({"text_a": list(SENTENCES)},),
)
ATTENTION = View(
    "Attention",
    "What each head looks at in a text or a pair, and what each layer would predict.",
    (TEXT, PAIR),
    (
        {"text_a": "The cat sat on the mat because it was tired.", "text_b": ""},
        {"text_a": "The [MASK] of the list is returned.", "text_b": ""},
    ),
)


def prediction_form(task: Task) -> Form:
    """Returns the form of a task's examples.

    Raises:
      UserError: no request can have them.
    """
    if task.EXAMPLE is Text:
        return _masks(task) if task.FILLS_MASKS else _whole_texts(task.READS_STREAMS)
    if task.EXAMPLE is None:
        raise UserError(f"The task {task.name!r} has no form for requests.")
    return _FORMS.get(task.EXAMPLE, _any)(task)


def with_samples(form: Form, config: RunConfig, task: Task) -> Form:
    """Returns the form with short examples from the run's evaluation file, if there is one."""
    source = config.get("data.eval", "")
    if not source or not (source.startswith("tfds:") or os.path.isfile(source)):
        return form
    try:
        examples = list(itertools.islice(task.read(source, Counter(), labelled=False), 100))
    except UserError:  # the file is another one now
        return form
    values = sorted((task.sample(example) for example in examples), key=lambda v: len(str(v)))
    short = [value for value in values if len(str(value)) <= _SAMPLE_CHARACTERS] or values[:1]
    chosen = tuple(short[len(short) * i // _SAMPLES] for i in range(min(_SAMPLES, len(short))))
    return replace(form, views=tuple(replace(view, samples=chosen) for view in form.views))


def text_form(*views: View, is_pair: bool = False) -> Form:
    """Returns the form of a text, or of a text or a pair."""

    def make(values: Values, where: str) -> Text:
        return Text(values["text_a"], values.get("text_b"), where)

    return Form((TEXT, PAIR) if is_pair else (TEXT,), make, views)


def _masks(task: Any) -> Form:
    judges_pairs = task.next_sentence and task.judges_pairs

    def make(values: Values, where: str) -> Text:
        text = Text(values["text_a"], values.get("text_b"), where)
        found = spell_masks(f"{text.text_a} {text.text_b or ''}").count("[MASK]")
        if found > MAX_MASKS:
            raise UserError(f"{where} has {found} [MASK]; at most {MAX_MASKS} are allowed.")
        if not found and not judges_pairs:
            raise UserError(f"{where} has no [MASK]: write it in place of a word.")
        if not found and text.text_b is None:
            raise UserError(f"{where} has no [MASK], and no `text_b` to compare with `text_a`.")
        return text

    needs = (Field("text_a", "Text", "with one or more [MASK]", needs="[MASK]"),)
    samples = (
        {"text_a": "The [MASK] of the list is returned."},
        {"text_a": "Paris is the [MASK] of France, and [MASK] is that of Spain."},
    )
    views = [View("Fill masks", "The most probable tokens for each [MASK].", needs, samples)]
    if judges_pairs:
        note = "Whether the second text follows the first one, or comes from elsewhere."
        samples = (
            {"text_a": "The cat sat on the mat.", "text_b": "It fell asleep there."},
            {"text_a": "The cat sat on the mat.", "text_b": "Returns the length of a list."},
        )
        views.append(View("Next sentence", note, _BOTH, samples))
    return Form((TEXT, PAIR), make, tuple(views))


def _whole_texts(is_single: bool) -> Form:
    view = View(
        "Probability",
        "How probable the model finds a text, and its perplexity for each token.",
        (TEXT,),
        tuple({"text_a": text} for text in SENTENCES),
    )
    return text_form(view, is_pair=not is_single)


def _form(
    task: Any,
    controls: tuple[Field, ...],
    samples: tuple[Values, ...],
    prepare: Callable[[Values, str], Values] = lambda values, where: values,
    view: tuple[str, str] | None = None,
    fields: tuple[Field, ...] = (),
    drawing: Values | None = None,
) -> Form:
    """Returns the form of a task's examples; `prepare` adapts inputs to `from_inputs`."""

    def make(values: Values, where: str) -> Example:
        return task.EXAMPLE.from_inputs(prepare(values, where), where, next(_numbers))

    title, note = view or task.view
    shown = View(title, note, controls, samples, drawing or {})
    return Form(fields or controls, make, (shown,), task.column_inputs)


def _any(task: Any) -> Form:
    """Returns a form with a control for each input of the task's examples."""
    inputs = task.EXAMPLE.inputs()
    fields = tuple(Field(i.name, i.name, is_list=i.is_list, optional=i.is_optional) for i in inputs)
    return _form(task, fields, ({i.name: [""] if i.is_list else "" for i in inputs},))


def _texts(task: Any) -> Form:
    first, *others = SENTENCES
    if task.reads_pairs:
        return _form(task, _BOTH, tuple({"text_a": first, "text_b": text} for text in others))
    return _form(task, (TEXT,), tuple({"text_a": text} for text in SENTENCES))


def _words(task: Any) -> Form:
    between = task.between_words

    def prepare(values: Values, where: str) -> Values:
        if ("text" in values) == ("words" in values):
            raise UserError(f"{where} needs either `text` or `words`.")
        text = values.get("text")
        words = values["words"] if text is None else split_words(text, by_character=not between)
        if not words:
            raise UserError(f"{where} has no words: give at least one.")
        return {"words": words, "text": text}

    samples = (
        {"text": "Marie Curie was born in Warsaw and moved to Paris in 1891 ."},
        {"text": "Google opened an office in Zurich , said Eric Schmidt on Monday ."},
    )
    hint = "with spaces between words and punctuation" if between else ""
    fields = Field("text", optional=True), Field("words", optional=True, is_list=True)
    # All types that the model knows, so that each has its color in every answer; other tags: none.
    kinds = sorted({label.partition("-")[2] for label in task.labels} - {""})
    controls = (Field("text", "Text", hint),)
    return _form(task, controls, samples, prepare, fields=fields, drawing={"kinds": kinds})


def _questions(task: Any) -> Form:
    def prepare(values: Values, where: str) -> Values:
        for name in ("question", "context"):
            if not values[name].strip():
                raise UserError(f"{where}.{name} is empty: give a text.")
        return values

    context = (
        "Marie Curie was born in Warsaw in 1867. She moved to Paris in 1891, studied physics and"
        " mathematics there, and won the Nobel Prize in Physics in 1903."
    )
    questions = ("Where was Marie Curie born?", "When did she move to Paris?")
    samples = tuple({"context": context, "question": question} for question in questions)
    fields = Field("context", "Passage", rows=6), Field("question", "Question", rows=1)
    view = "Questions", "The part of a passage that answers a question."
    return _form(task, fields, samples, prepare, view)


def _choices(task: Any) -> Form:
    def prepare(values: Values, where: str) -> Values:
        endings = values["endings"]
        if not 2 <= len(endings) <= MAX_ENDINGS:
            raise UserError(
                f"{where}.endings has {len(endings)} elements; allowed: 2 to {MAX_ENDINGS}."
            )
        for number, ending in enumerate(endings):
            if not ending.strip():
                raise UserError(f"{where}.endings[{number}] is empty: give a text.")
        return values

    sample = {
        "context": "The cook puts the cake into the oven.",
        "start": "After an hour,",
        "endings": ["it is taken out.", "the oven sings.", "the cake is a list."],
    }
    fields = (
        Field("context", "Text"),
        Field("start", "Beginning of the next sentence", rows=1, optional=True),
        Field("endings", "Endings", "one a line", rows=4, is_list=True),
    )
    view = "Endings", "Which of several endings continues a text."
    return _form(task, fields, (sample,), prepare, view)


_FORMS: dict[type, Callable[[Any], Form]] = {
    TextExample: _texts,
    TaggedExample: _words,
    Question: _questions,
    ChoiceExample: _choices,
}
