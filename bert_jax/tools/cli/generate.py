"""Continues texts by a model that predicts the next word: GPT, or left-to-right BERT.

    bert_jax generate --model=MODEL "The list is"
    bert_jax generate --model=MODEL --greedy "The list is" "It returns"
    bert_jax generate --model=MODEL --top_p=0.9 --num_samples=3 --seed=1 "The list is"

Words are drawn from the model's distribution, which --temperature, --top_k and --top_p change in
this order; --greedy takes the most probable word instead. A text ends where the model ends it, or
after --max_new_tokens.
"""

import argparse

from bert_jax.files.errors import UserError
from bert_jax.tools.cli.command_line import TRAINED, Flag, load_model

FLAGS = (
    *TRAINED,
    Flag("max_new_tokens", 50, "Maximum number of tokens after a prompt.", minimum=1),
    Flag("greedy", False, "Take the most probable word, without chance."),
    Flag("temperature", 1.0, "Divides the logits: below 1, less is left to chance."),
    Flag("top_k", 0, "Only this many of the most probable words; 0: all.", minimum=0),
    Flag("top_p", 1.0, "Only the most probable words with this probability in sum."),
    Flag("num_samples", 1, "Texts for each prompt.", minimum=1),
    Flag("seed", 0, "Sampling seed.", minimum=0),
    Flag("PROMPT", [], "the beginning of a text"),
)


def run(flags: argparse.Namespace) -> None:
    if not flags.prompt:
        raise UserError('Give the beginning of a text, for example "The list is".')
    if flags.greedy and flags.num_samples > 1:
        raise UserError(
            f"--greedy gives the same text {flags.num_samples} times: leave out --num_samples."
        )
    loaded = load_model(flags)
    from bert_jax.inference.model import Model

    texts = Model(**vars(loaded)).generate(
        flags.prompt,
        flags.max_new_tokens,
        greedy=flags.greedy,
        temperature=flags.temperature,
        top_k=flags.top_k,
        top_p=flags.top_p,
        num_samples=flags.num_samples,
        seed=flags.seed,
    )
    for text in texts:
        print(f"\n{text}")
