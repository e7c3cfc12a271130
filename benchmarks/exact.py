"""Measures what exact vectors cost, and whether other texts of a batch change a byte of them.

    python -m benchmarks.exact --model=MODEL --input=FILE

Encodes the first lines of a file as they are and exactly, in turns; then --batchings times in
random order and in batches of random sizes, and compares the bytes of each text with the first.
"""

import argparse
import functools
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

import bert_jax
from benchmarks import command
from benchmarks.side_by_side import describe_machine
from bert_jax.tools.cli.command_line import MODEL, Flag

# Texts of the largest of the random batches.
_MOST = 500
_SINGLE = 50

FLAGS = (
    MODEL,
    Flag("input", "", "A text on each line.", missing="a file with a text on each line"),
    Flag("lines", 10_000, "Lines that are read.", minimum=1),
    Flag("batchings", 20, "Random divisions into batches.", minimum=1),
    Flag("rounds", 3, "Measurements of the speed.", minimum=1),
)


def run(flags: argparse.Namespace) -> None:
    """Prints the speeds, their ratios, and the number of vectors with a different byte."""
    with open(flags.input, encoding="utf-8") as file:
        texts = [*itertools.islice((line.strip() for line in file if line.strip()), flags.lines)]
    model = bert_jax.load(flags.model)
    print(describe_machine())

    def encode(exact: bool) -> np.ndarray:
        return model.encode(texts, long="truncate", exact=exact)

    first = encode(True)
    encode(False)
    speeds: dict[bool, list[float]] = {False: [], True: []}
    for _, exact in itertools.product(range(flags.rounds), speeds):
        speeds[exact].append(len(texts) / _seconds(lambda exact=exact: encode(exact)))
    ratios = [e / p for p, e in zip(*speeds.values(), strict=True)]
    for exact, found in speeds.items():
        encode_one = functools.partial(model.encode, long="truncate", exact=exact)
        single = [_seconds(functools.partial(encode_one, [text])) for text in texts[:_SINGLE]]
        print(
            f"{'exact' if exact else 'packed'}: {statistics.median(found):,.1f} texts/s, a single"
            f" text {1000 * statistics.median(single):.1f} ms"
        )
    print(f"exact / packed: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")

    different = 0
    for seed in range(flags.batchings):
        for numbers in divide(len(texts), random.Random(seed)):
            batch = [texts[number] for number in numbers]
            found = model.encode(batch, long="truncate", exact=True)
            different += sum(
                vector.tobytes() != first[number].tobytes()
                for vector, number in zip(found, numbers, strict=True)
            )
    total = flags.batchings * len(texts)
    print(f"{different:,} of {total:,} vectors have another byte than in the first batch")


def divide(count: int, rng: random.Random) -> Iterator[list[int]]:
    """Yields the numbers below `count` in random order, in parts of random sizes."""
    numbers = rng.sample(range(count), count)
    while numbers:
        size = rng.randint(1, _MOST)
        yield numbers[:size]
        numbers = numbers[size:]


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    command.start("exact")
