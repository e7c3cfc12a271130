"""Checkpoints in and out, on the command line.

    python -m bert_jax.convert from_hf DIR_OR_FILE OUT    folder of Hugging Face -> workdir
    python -m bert_jax.convert from_google DIR OUT        folder of google-research/bert -> workdir
    python -m bert_jax.convert to_hf WORKDIR OUT          workdir -> folder of Hugging Face
    python -m bert_jax.convert to_stablehlo WORKDIR OUT   workdir -> program that needs only jax
    python -m bert_jax.convert inspect PATH               names, shapes and types of the tensors
    python -m bert_jax.convert verify A B                 differences of what two compute

Each command says more with --help. OUT is written whole or not at all.
"""

from collections.abc import Callable, Sequence

from bert_jax.commands import command_line


def from_hf(words: list[str]) -> None:
    from bert_jax.convert import importing

    importing.run("huggingface", words)


def from_google(words: list[str]) -> None:
    from bert_jax.convert import importing

    importing.run("google", words)


def to_hf(words: list[str]) -> None:
    from bert_jax.convert import to_huggingface

    to_huggingface.run(words)


def to_stablehlo(words: list[str]) -> None:
    from bert_jax.convert import stablehlo

    stablehlo.run(words)


def inspect(words: list[str]) -> None:
    from bert_jax.convert import inspection

    inspection.run(words)


def verify(words: list[str]) -> None:
    from bert_jax.convert import comparison

    comparison.run(words)


# Each imports what it needs when it runs, so that mistakes are answered at once.
COMMANDS: dict[str, Callable[[list[str]], None]] = {
    function.__name__: function
    for function in (from_hf, from_google, to_hf, to_stablehlo, inspect, verify)
}


def main(argv: Sequence[str]) -> None:
    name, *words = [*argv[1:], ""][: max(1, len(argv) - 1)]
    if name in ("--help", "-h", "-help"):
        print(__doc__)
        return
    if name not in COMMANDS:
        raise ValueError(
            f"{name!r} is no command of bert_jax.convert. Available: {', '.join(COMMANDS)}."
            if name
            else f"Which command of bert_jax.convert? Available: {', '.join(COMMANDS)}."
        )
    COMMANDS[name](words)


if __name__ == "__main__":
    command_line.run(main)
