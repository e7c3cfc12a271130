"""Trains, evaluates or predicts, depending on --mode.

    python -m bert_jax.main --config=configs/tiny.py --workdir=DIR
    python -m bert_jax.main --mode=evaluate --workdir=DIR
    python -m bert_jax.main --mode=predict --workdir=DIR --input=FILE --output=FILE

The same as the commands train, evaluate and predict of `python -m bert_jax`.
"""

from collections.abc import Sequence

from bert_jax.tools.cli import command_line, evaluate, predict, train

MODES = {"train": train, "evaluate": evaluate, "predict": predict}
MODE = command_line.Flag("mode", "train", "What to do.", choices=tuple(MODES))


def main(words: Sequence[str]) -> None:
    flags = command_line.parse("bert_jax.main", __doc__, (MODE, *predict.FLAGS), words)
    MODES[flags.mode].run(flags)


if __name__ == "__main__":
    command_line.run(main)
