"""Answers questions about a text with a model for questions (config.task.name='span').

    bert_jax answer --model=MODEL --context=article.txt --question="Who wrote it?"
    bert_jax answer --model=MODEL --question="Who?" --question="When?" \\
        --context="The novel was written by Jane Austen in 1813." --output=answers.jsonl

The context is a text, a file, or - for standard input. Each answer is a part of it, and is printed
with its probability and its place; --output writes the other candidates too. `predict` answers the
questions of a file in SQuAD's form.
"""

import argparse
import os

from bert_jax.data.labelled.examples import Question
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import EXACT, TRAINED, Flag, load_model
from bert_jax.tools.cli.predict import write_or_print
from bert_jax.tools.outputs.files import PREDICTIONS, check_output
from bert_jax.tools.outputs.inputs import Inputs, Source, read_word

_GIVE = "give --question=QUESTION --context=CONTEXT"
FLAGS = (
    *TRAINED,
    EXACT,
    Flag("question", [], "A question; repeat the flag for several.", missing=_GIVE),
    Flag("context", "", "The text with the answers: a text, a file, or -.", missing=_GIVE),
    Flag("output", "", "File to write, .jsonl or SQuAD's .json; - prints JSON lines."),
)


def run(flags: argparse.Namespace) -> None:
    context = read_word(flags.context)
    pairs = tuple({"question": question, "context": context} for question in flags.question)
    check_output(flags.output, PREDICTIONS, filter(os.path.isfile, [flags.context]))
    model = load_model(flags)
    if model.task.EXAMPLE is not Question:
        raise UserError(
            f"{flags.model} is for the task {model.config.task.name!r}: only a model that was"
            " trained on questions (config.task.name='span') answers them."
        )
    write_or_print(model, Inputs((Source(values=pairs),)), flags.output)
