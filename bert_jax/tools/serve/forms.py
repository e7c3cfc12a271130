"""Inputs of requests as examples of the tasks, by the class of the example.

A task says which class its examples have (`TaskRow.example`), and nothing here knows tasks by name.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bert_jax.data.labelled.examples import ChoiceExample, Question, TaggedExample, TextExample
from bert_jax.data.labelled.texts import Text
from bert_jax.files.errors import UserError
from bert_jax.tasks import find_task
from bert_jax.tasks.task import TaskData
from bert_jax.tools.serve.limits import Limits
from bert_jax.tools.serve.page import Control, View
from bert_jax.tools.serve.requests import Field

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Form:
    """How inputs become examples.

    Attributes:
      fields: of an input.
      make: (values of an input, its place for messages) -> example; raises UserError.
      fill: text -> values of an input with this text as its longest.
      views: of the page.
    """

    fields: tuple[Field, ...]
    make: Callable[[Values, str], Any]
    fill: Callable[[str], Values]
    views: tuple[View, ...]


TEXT, PAIR = Field("text_a"), Field("text_b", optional=True)
SENTENCES = (
    "The cat sat on the mat.",
    "A kitten was sitting on a rug.",
    "The function returns a list of strings.",
)


def prediction_form(task: str, data: TaskData, limits: Limits) -> Form | None:
    """Returns the form of a task's examples; None: no request can have them.

    Args:
      task: of the configuration.
      data: its host side.
      limits: of the server.
    """
    row = find_task(task)
    if row.example is Text:
        return _masks(data, limits) if row.fills_masks else _whole_texts(row.reads_streams)
    make = _FORMS.get(row.example) if row.example else None
    return make(data, limits) if make else None


def text_form(*views: View, is_pair: bool = False) -> Form:
    """Returns the form of a text, or of a text or a pair."""
    fields = (TEXT, PAIR) if is_pair else (TEXT,)
    return Form(fields, _make_text, lambda text: {"text_a": text}, views)


def _make_text(values: Values, where: str) -> Text:
    return Text(values["text_a"], values.get("text_b"), where)


def _masks(data: Any, limits: Limits) -> Form:
    def make(values: Values, where: str) -> Text:
        text = _make_text(values, where)
        found = text.text_a.count("[MASK]") + (text.text_b or "").count("[MASK]")
        if found > limits.masks:
            raise UserError(f"{where} has {found} [MASK]; at most {limits.masks} are allowed.")
        if not found and not pairs:
            raise UserError(f"{where} has no [MASK].")
        if not found and text.text_b is None:
            raise UserError(f"{where} has no [MASK], and no `text_b` to compare with `text_a`.")
        return text

    pairs = data.next_sentence and data.judges_pairs

    fill = View(
        "Fill masks",
        "The most probable tokens for each [MASK].",
        (Control("text_a", "Text", "with one or more [MASK]", needs="[MASK]"),),
        (
            {"text_a": "The [MASK] of the list is returned."},
            {"text_a": "Paris is the [MASK] of France, and [MASK] is that of Spain."},
        ),
    )
    judge = View(
        "Next sentence",
        "Whether the second text follows the first one, or comes from elsewhere.",
        (Control("text_a", "First text"), Control("text_b", "Second text")),
        (
            {"text_a": "The cat sat on the mat.", "text_b": "It fell asleep there."},
            {"text_a": "The cat sat on the mat.", "text_b": "Returns the length of a list."},
        ),
    )
    views = (fill, judge) if pairs else (fill,)
    return Form((TEXT, PAIR), make, lambda text: {"text_a": f"{text} [MASK]"}, views)


def _whole_texts(is_single: bool) -> Form:
    view = View(
        "Probability",
        "How probable the model finds a text, and its perplexity for each token.",
        (Control("text_a", "Text"),),
        tuple({"text_a": text} for text in SENTENCES),
    )
    return text_form(view, is_pair=not is_single)


def _texts(data: Any, limits: Limits) -> Form:
    numbers = itertools.count()
    is_pair = getattr(data, "reads_pairs", False)

    def make(values: Values, where: str) -> TextExample:
        return TextExample(where, str(next(numbers)), values["text_a"], values.get("text_b"))

    controls = [Control("text_a", "First text" if is_pair else "Text")]
    samples = [{"text_a": text} for text in SENTENCES]
    if is_pair:
        controls.append(Control("text_b", "Second text"))
        samples = [
            {"text_a": SENTENCES[0], "text_b": other} for other in (SENTENCES[1], SENTENCES[2])
        ]
    is_number = getattr(data, "kind", "") == "regression"
    title, note = "Classify", "The probability of each class."
    if is_number:
        title, note = "Value", "The number that the model gives."
    view = View(title, note, tuple(controls), tuple(samples))
    fields = (TEXT, Field("text_b")) if is_pair else (TEXT,)
    other = {"text_b": "a"} if is_pair else {}
    return Form(fields, make, lambda text: {"text_a": text, **other}, (view,))


def _words(data: Any, limits: Limits) -> Form:
    # Each input is a document by itself: no model reads one as the context of another.
    numbers = itertools.count()
    by_character = getattr(data, "by_character", False)

    def make(values: Values, where: str) -> TaggedExample:
        if ("text" in values) == ("words" in values):
            raise UserError(f"{where} needs either `text` or `words`.")
        words = values.get("words") or values.get("text", "").split()
        if by_character and "text" in values:
            words = [character for word in words for character in word]
        if not words:
            raise UserError(f"{where} has no words.")
        number = next(numbers)
        return TaggedExample(where, str(number), tuple(words), None, number)

    names = getattr(data, "entities", False)
    separated = "" if by_character else "with spaces between words and punctuation"
    # All that the model knows, so that each has its color in every answer.
    kinds = sorted({label.partition("-")[2] for label in data.labels} - {""}) if names else []
    view = View(
        "Entities" if names else "Tags",
        "The entities of a text." if names else "The tag of each word.",
        (Control("text", "Text", separated),),
        (
            {"text": "Marie Curie was born in Warsaw and moved to Paris in 1891 ."},
            {"text": "Google opened an office in Zurich , said Eric Schmidt on Monday ."},
        ),
        {"between": "" if by_character else " ", "kinds": kinds},
    )
    fields = Field("text", optional=True), Field("words", optional=True, is_list=True)
    return Form(fields, make, lambda text: {"words": tuple(text.split())}, (view,))


def _questions(data: Any, limits: Limits) -> Form:
    numbers = itertools.count()

    def make(values: Values, where: str) -> Question:
        for name in ("question", "context"):
            if not values[name].strip():
                raise UserError(f"{where}.{name} is empty.")
        return Question(where, str(next(numbers)), values["question"], values["context"])

    context = (
        "Marie Curie was born in Warsaw in 1867. She moved to Paris in 1891, studied physics and"
        " mathematics there, and won the Nobel Prize in Physics in 1903."
    )
    questions = ("Where was Marie Curie born?", "When did she move to Paris?")
    view = View(
        "Questions",
        "The part of a passage that answers a question.",
        (Control("context", "Passage", rows=6), Control("question", "Question", rows=1)),
        tuple({"context": context, "question": question} for question in questions),
    )
    fields = Field("question"), Field("context")
    return Form(fields, make, lambda text: {"question": "a", "context": text}, (view,))


def _choices(data: Any, limits: Limits) -> Form:
    numbers = itertools.count()

    def make(values: Values, where: str) -> ChoiceExample:
        endings = values["endings"]
        if not 2 <= len(endings) <= limits.endings:
            raise UserError(
                f"{where}.endings has {len(endings)} elements; allowed: 2 to {limits.endings}."
            )
        if any(not ending.strip() for ending in endings):
            raise UserError(f"{where}.endings has an empty text.")
        context, start = values["context"], values.get("start", "")
        return ChoiceExample(where, str(next(numbers)), context, start, endings)

    sample = {
        "context": "The cook puts the cake into the oven.",
        "start": "After an hour,",
        "endings": ["it is taken out.", "the oven sings.", "the cake is a list."],
    }
    view = View(
        "Endings",
        "Which of several endings continues a text.",
        (
            Control("context", "Text"),
            Control("start", "Beginning of the next sentence", rows=1, optional=True),
            Control("endings", "Endings", "one a line", rows=4, is_list=True),
        ),
        (sample,),
    )
    fields = Field("context"), Field("start", optional=True), Field("endings", is_list=True)
    endings = {"endings": ("a",) * 4}
    return Form(fields, make, lambda text: {"context": text, **endings}, (view,))


_FORMS: dict[type, Callable[[Any, Limits], Form]] = {
    TextExample: _texts,
    TaggedExample: _words,
    Question: _questions,
    ChoiceExample: _choices,
}
