"""Continues texts by a model that predicts the next word: GPT, or left-to-right BERT.

    python -m bert_jax generate --workdir=DIR "The list is"
    python -m bert_jax generate --workdir=DIR --greedy "The list is" "It returns"
    python -m bert_jax generate --workdir=DIR --top_p=0.9 --num_samples=3 --seed=1 "The list is"

Words are drawn from the model's distribution, which --temperature, --top_k and --top_p change in
this order; --greedy takes the most probable word instead. A text ends where the model ends it, or
after --max_new_tokens.
"""

from collections.abc import Sequence

from bert_jax.files.errors import UserError
from bert_jax.tools.cli.flags import configuration, run_flags
from bert_jax.tools.cli.flags.command_line import Parser


def main(argv: Sequence[str]) -> None:
    parser = Parser("bert_jax generate", __doc__)
    parser.flag("workdir", "", "Folder of a trained run, or of imported weights.")
    parser.flag("max_new_tokens", 50, "Tokens that follow a prompt, at most.", least=1)
    parser.switch("greedy", "Take the most probable word, without chance.")
    parser.flag("temperature", 1.0, "Divides the logits: below 1, less is left to chance.")
    parser.flag("top_k", 0, "Only this many of the most probable words; 0: all.", least=0)
    parser.flag("top_p", 1.0, "Only the most probable words with this probability in sum.")
    parser.flag("num_samples", 1, "Texts for each prompt.", least=1)
    parser.flag("seed", 0, "Of the random choices.", least=0)
    parser.words("PROMPT", "the beginning of a text", "*")
    run_flags.add_cache(parser)
    config, flags = configuration.parse_config(parser, argv, workdir_is_enough=True)
    if not flags.workdir:
        raise UserError("--workdir is missing: the folder of a trained run.")
    if not flags.prompt:
        raise UserError('Give the beginning of a text, for example "The list is".')
    if flags.greedy and flags.num_samples > 1:
        raise UserError(
            f"--greedy gives the same text {flags.num_samples} times: leave out --num_samples."
        )

    run_flags.use_cache(flags)
    from bert_jax.inference.generation import Generator
    from bert_jax.inference.loading import load_workdir
    from bert_jax.inference.sampling import Sampling

    sampling = Sampling(flags.greedy, flags.temperature, flags.top_k, flags.top_p)
    generator = Generator(load_workdir(config, flags.workdir))
    prompts = [generator.prompt(text, flags.max_new_tokens) for text in flags.prompt]
    samples = generator.generate(
        prompts,
        sampling,
        max_new_tokens=flags.max_new_tokens,
        seed=flags.seed,
        num_samples=flags.num_samples,
    )
    for prompt, new in samples:
        print(f"\n{generator.text(prompt, new)}")
