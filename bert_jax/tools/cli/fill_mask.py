"""Predicts the [MASK] tokens of texts.

    python -m bert_jax fill_mask --model=MODEL "The [MASK] of the list is returned."
    python -m bert_jax fill_mask --model=MODEL --held_out=5

The second form masks frequent words of held-out sentences, and prints the masked tokens too.
"""

import argparse

from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import TOP_K, TRAINED, Flag, load_model

FLAGS = (
    *TRAINED,
    TOP_K,
    Flag("held_out", 0, "Number of held-out sentences.", minimum=0),
    Flag("TEXT", [], "text with one or more [MASK]"),
)


def run(flags: argparse.Namespace) -> None:
    if not flags.text and not flags.held_out:
        raise UserError('Give a text with a mask, for example "The [MASK] of the list.".')
    for text in flags.text:
        if "[MASK]" not in text:
            raise UserError(f"There is no [MASK] in {text!r}.")

    loaded = load_model(flags)
    from bert_jax.inference.model import Model

    texts = [(text, "") for text in flags.text]
    if flags.held_out:
        from bert_jax.tools.outputs.samples import held_out_sentences

        texts += held_out_sentences(loaded.config, loaded.folder, flags.held_out)
    filled = Model(loaded).fill_mask([text for text, _ in texts], flags.top_k)
    for (text, word), masks in zip(texts, filled, strict=True):
        print(f"\n{text}" + (f"   ({word})" if word else ""))
        for candidate in (candidate for mask in masks for candidate in mask):
            print(f"  {candidate['probability']:6.1%}  {candidate['token']}")
