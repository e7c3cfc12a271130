"""Imports, exports, lists and compares checkpoints.

    python -m bert_jax convert from_hf DIR_OR_FILE OUT    folder of Hugging Face -> workdir
    python -m bert_jax convert from_google DIR OUT        folder of google-research/bert -> workdir
    python -m bert_jax convert from_openai DIR OUT        released weights of GPT -> workdir
    python -m bert_jax convert from_bilm DIR OUT          folder of bilm-tf (ELMo) -> workdir
    python -m bert_jax convert to_hf WORKDIR OUT          workdir -> folder of Hugging Face
    python -m bert_jax convert to_stablehlo WORKDIR OUT   workdir -> program that needs only jax
    python -m bert_jax convert inspect PATH               names, shapes and dtypes of the tensors
    python -m bert_jax convert verify A B                 differences between two models' outputs

Add --help to one of them for its flags. OUT is written completely or not at all.
"""

import os
from collections.abc import Callable, Sequence

from bert_jax.config.encoder_fields import ACTIVATIONS
from bert_jax.files.errors import UserError
from bert_jax.tools.cli.flags.command_line import HELP, Parser


def main(argv: Sequence[str]) -> None:
    name = argv[1] if len(argv) > 1 else ""
    if name in HELP:
        print(__doc__)
        return
    if name not in CONVERSIONS:
        problem = f"{name!r} is not a conversion" if name else "The conversion is missing"
        raise UserError(f"{problem}. Available: {', '.join(CONVERSIONS)}.")
    CONVERSIONS[name](argv[1:])


def from_hf(argv: Sequence[str]) -> None:
    _import("huggingface", "DIR_OR_FILE", argv)


def from_google(argv: Sequence[str]) -> None:
    _import("google", "DIR", argv)


def from_openai(argv: Sequence[str]) -> None:
    _import("openai", "DIR", argv)


def from_bilm(argv: Sequence[str]) -> None:
    parser = _parser(argv, "Makes a workdir of a model of bilm-tf (ELMo).", "MODEL RUN")
    parser.words("DIR", "folder with options.json and *weights.hdf5")
    parser.words("OUT", "the workdir to make")
    parser.flag("vocab", "", "A vocabulary, if DIR has none or several.", metavar="FILE")
    parser.switch("lowercase", "Text is lower-cased.", default=False)
    parser.switch("comparison", "Do not recompute the reference files.", default=True)
    flags = parser.parse(argv)

    from bert_jax.formats.foreign import Choices
    from bert_jax.tools.convert.conversions import convert

    choices = Choices(vocab=flags.vocab, lowercase=flags.lowercase)
    convert(flags.dir, flags.out, format="bilm", choices=choices, compare=flags.comparison)


def _import(format: str, path: str, argv: Sequence[str]) -> None:
    parser = _parser(argv, "Makes a workdir of another program's checkpoint.", "WEIGHTS RUN")
    parser.words(path, "the checkpoint, with its configuration in the same folder")
    parser.words("OUT", "the workdir to make")
    parser.flag("activation", "", "Instead of the checkpoint's.", choices=ACTIVATIONS)
    parser.flag("vocab", "", "The vocabulary, if it is in another folder.", metavar="FILE")
    parser.switch("lowercase", "Text is lower-cased, or not (--nolowercase).", default=None)
    parser.switch("comparison", "Do not run the checkpoint's own program.", default=True)
    flags = parser.parse(argv)

    from bert_jax.formats.foreign import Choices
    from bert_jax.tools.convert.conversions import convert

    choices = Choices(flags.activation, flags.vocab, flags.lowercase)
    source, out = getattr(flags, path.lower()), flags.out
    convert(source, out, format=format, choices=choices, compare=flags.comparison)


def to_hf(argv: Sequence[str]) -> None:
    parser = _parser(argv, "Makes a folder that transformers loads.", "RUN MODEL")
    parser.words("WORKDIR", "folder of the run")
    parser.words("OUT", "the folder to make")
    parser.switch("comparison", "Do not run the result in transformers.", default=True)
    flags = parser.parse(argv)

    from bert_jax.tools.convert.conversions import to_huggingface

    to_huggingface(flags.workdir, os.path.normpath(flags.out), compare=flags.comparison)


def to_stablehlo(argv: Sequence[str]) -> None:
    parser = _parser(argv, "Makes a program that needs only jax.", "RUN PROGRAM")
    parser.words("WORKDIR", "folder of the run")
    parser.words("OUT", "the folder to make")
    flags = parser.parse(argv)

    from bert_jax.tools.convert.conversions import to_stablehlo

    to_stablehlo(flags.workdir, os.path.normpath(flags.out))


def inspect(argv: Sequence[str]) -> None:
    parser = _parser(argv, "Lists the tensors of a checkpoint.", "RUN")
    parser.words("PATH", "a folder or a file of any known format")
    path = parser.parse(argv).path

    from bert_jax.tools.convert.inspection import list_tensors

    for line in list_tensors(path):
        print(line)


def verify(argv: Sequence[str]) -> None:
    parser = _parser(argv, "Prints the largest differences between two models' outputs.", "RUN DIR")
    parser.words("A", "a workdir, or a folder of another program")
    parser.words("B", "another one")
    flags = parser.parse(argv)

    from bert_jax.tools.convert.comparison import compare

    for line in compare(flags.a, flags.b):
        print(line)


def _parser(argv: Sequence[str], description: str, example: str) -> Parser:
    command = f"bert_jax convert {argv[0]}"
    return Parser(command, f"{description}\n\n    python -m {command} {example}")


CONVERSIONS: dict[str, Callable[[Sequence[str]], None]] = {
    function.__name__: function
    for function in (
        *(from_hf, from_google, from_openai, from_bilm),
        *(to_hf, to_stablehlo, inspect, verify),
    )
}
