"""Trains, evaluates or predicts, depending on --mode.

    python -m bert_jax.main --config=configs/tiny.py --workdir=DIR
    python -m bert_jax.main --mode=evaluate --workdir=DIR
    python -m bert_jax.main --mode=predict --workdir=DIR --input=FILE --output=FILE

The same as the commands train, evaluate and predict of `python -m bert_jax`.
"""

from collections.abc import Sequence

from bert_jax.tools.cli import evaluate, predict, train
from bert_jax.tools.cli.flags import command_line, configuration, run_flags

MODES = {"train": train, "evaluate": evaluate, "predict": predict}


def main(argv: Sequence[str]) -> None:
    parser = command_line.Parser("bert_jax.main", __doc__)
    parser.flag("mode", "train", "What to do.", choices=tuple(MODES))
    run_flags.add(parser)
    predict.add_flags(parser)
    is_trained = command_line.flag_value(argv, "mode") in ("evaluate", "predict")
    config, flags = configuration.parse_config(parser, argv, workdir_is_enough=is_trained)
    MODES[flags.mode].run(config, flags)


if __name__ == "__main__":
    command_line.run(main)
