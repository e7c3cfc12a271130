"""Trains, evaluates or predicts, depending on --mode.

    python -m bert_jax.main --config=configs/tiny.py --workdir=DIR
    python -m bert_jax.main --mode=evaluate --workdir=DIR
    python -m bert_jax.main --mode=predict --model=DIR texts.txt --output=predictions.jsonl

The same as the commands train, evaluate and predict of `python -m bert_jax`.
"""

from collections.abc import Sequence

from bert_jax.tools.cli import command_line, evaluate, predict, train

MODES = {"train": train, "evaluate": evaluate, "predict": predict}
MODE = command_line.Flag("mode", "train", "What to do.", choices=tuple(MODES))


def main(words: Sequence[str]) -> None:
    text = " ".join(words).replace("--mode ", "--mode=")
    mode = next((mode for mode in MODES if f"--mode={mode}" in text), "train")
    flags = (MODE, *MODES[mode].FLAGS)
    MODES[mode].run(command_line.parse("bert_jax.main", __doc__, flags, words))


if __name__ == "__main__":
    command_line.run(main)
