"""Imports, exports, lists and compares checkpoints.

    bert_jax convert from_hf PATH OUT          folder or file of Hugging Face -> workdir
    bert_jax convert from_google DIR OUT        folder of google-research/bert -> workdir
    bert_jax convert from_openai DIR OUT        released weights of GPT -> workdir
    bert_jax convert from_bilm DIR OUT          folder of bilm-tf (ELMo) -> workdir
    bert_jax convert to_hf WORKDIR OUT          workdir -> folder of Hugging Face
    bert_jax convert to_stablehlo WORKDIR OUT   workdir -> program that needs only jax
    bert_jax convert to_onnx MODEL OUT          model -> folder for onnxruntime
    bert_jax convert inspect PATH               names, shapes and dtypes of the tensors
    bert_jax convert verify A B                 differences between two models' outputs

Add --help to one of them for its flags. OUT is written completely or not at all.
"""

import argparse
import os

from bert_jax.config.encoder_fields import ACTIVATIONS
from bert_jax.tools.cli.command_line import Flag

KIND = "conversion"
# Command -> name of the format in `bert_jax.formats.FORMATS`.
_FORMATS = {
    "from_hf": "huggingface",
    "from_google": "google",
    "from_openai": "openai",
    "from_bilm": "bilm",
}


def import_weights(flags: argparse.Namespace) -> None:
    """Makes a workdir of another program's checkpoint.

    bert_jax convert from_hf WEIGHTS RUN
    """
    from bert_jax.formats.foreign import Choices
    from bert_jax.tools.convert.conversions import convert

    choices = Choices(flags.activation, flags.vocab, flags.lowercase)
    format = _FORMATS[flags.command]
    convert(flags.path, flags.out, format=format, choices=choices, compare=flags.comparison)


def to_hf(flags: argparse.Namespace) -> None:
    """Makes a folder that transformers loads.

    bert_jax convert to_hf RUN MODEL
    """
    from bert_jax.tools.convert.conversions import milestones_to_huggingface, to_huggingface

    convert = milestones_to_huggingface if flags.milestones else to_huggingface
    convert(flags.workdir, os.path.normpath(flags.out), compare=flags.comparison)


def to_stablehlo(flags: argparse.Namespace) -> None:
    """Makes a program that needs only jax.

    bert_jax convert to_stablehlo RUN PROGRAM
    """
    from bert_jax.tools.convert.conversions import to_stablehlo

    to_stablehlo(flags.workdir, os.path.normpath(flags.out))


def to_onnx(flags: argparse.Namespace) -> None:
    """Makes a folder for onnxruntime.

    bert_jax convert to_onnx RUN FOLDER
    """
    from bert_jax.tools.convert.conversions import to_onnx

    choices = {name: getattr(flags, name) for name in ("output", "int8", "evaluate", "max_loss")}
    to_onnx(flags.model, os.path.normpath(flags.out), **choices)


def inspect(flags: argparse.Namespace) -> None:
    """Lists the tensors of a checkpoint.

    bert_jax convert inspect RUN
    """
    from bert_jax.tools.convert.inspection import list_tensors

    for line in list_tensors(flags.path):
        print(line)


def verify(flags: argparse.Namespace) -> None:
    """Prints the largest differences between two models' outputs.

    bert_jax convert verify RUN DIR
    """
    from bert_jax.tools.convert.comparison import compare

    for line in compare(flags.a, flags.b):
        print(line)


_OF_IMPORTS = (
    Flag("PATH", "", "the checkpoint, with its configuration in the same folder"),
    Flag("OUT", "", "the workdir to make"),
    Flag("activation", "", "Instead of the checkpoint's.", choices=ACTIVATIONS),
    Flag("vocab", "", "The vocabulary, if it is in another folder, or one of several."),
    Flag("lowercase", None, "Text is lowercased, or not (--nolowercase); not as PATH says."),
    Flag("comparison", True, "Do not run the checkpoint's own program."),
)
_OF_EXPORTS = (Flag("WORKDIR", "", "folder of the run"), Flag("OUT", "", "the folder to make"))
COMMANDS = {
    **{name: (import_weights, _OF_IMPORTS) for name in _FORMATS},
    "to_hf": (
        to_hf,
        (
            *_OF_EXPORTS,
            Flag("milestones", False, "Make OUT/chck_1M, ... of config.checkpoint.milestones."),
            Flag("comparison", True, "Do not run the result in transformers."),
        ),
    ),
    "to_stablehlo": (to_stablehlo, _OF_EXPORTS),
    "to_onnx": (
        to_onnx,
        (
            Flag("MODEL", "", "a workdir, or a folder of another program"),
            Flag("OUT", "", "the folder to make"),
            Flag(
                "output",
                "",
                "Logits of the head, or vectors of tokens and texts; empty: the head, if trained.",
                choices=("task", "vectors"),
            ),
            Flag("int8", False, "Compute products in int8, if the loss on --evaluate is small."),
            Flag("evaluate", "", "Labelled examples, or texts of a model without a trained head."),
            Flag("max_loss", 0.01, "Largest loss of the metric, or of the mean cosine of 1."),
        ),
    ),
    "inspect": (inspect, (Flag("PATH", "", "a folder or a file of any known format"),)),
    "verify": (
        verify,
        (Flag("A", "", "a workdir, or a folder of another program"), Flag("B", "", "another one")),
    ),
}
