"""Prints the numbers behind the claims: python -m bert_jax.benchmark step | train | prepare."""

import importlib
import sys

_BENCHMARKS = ("step", "train", "prepare")


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in _BENCHMARKS:
        print(f"error: say which benchmark: {', '.join(_BENCHMARKS)}.", file=sys.stderr)
        sys.exit(2)
    importlib.import_module(f"bert_jax.benchmark.{sys.argv[1]}").main(sys.argv[2:])


if __name__ == "__main__":
    main()
