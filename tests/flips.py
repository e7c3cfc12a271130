"""Flips single bits of a run's checkpoints and data, and counts those that are detected.

    python -m tests.flips --workdir=RUN [--checkpoints=200] [--data=100] [--seed=0]

Each bit is flipped alone, in a file and at a place drawn at random (a byte of any file is as likely
as any other, but every second bit of the data is one of its manifest), and then flipped back.
Exit code 1 if one is not detected.
"""

import argparse
import pathlib
import random
import sys
from collections.abc import Callable, Sequence

from bert_jax.config import store
from bert_jax.data.corpus import manifest
from bert_jax.training.seals import find_corruption


def flip(path: pathlib.Path, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def count_detected(
    files: Sequence[pathlib.Path], count: int, is_detected: Callable[[], bool], rng: random.Random
) -> int:
    """Returns how many of `count` single bits are detected, and names the others."""
    sizes, detected = [path.stat().st_size for path in files], 0
    for _ in range(count):
        (number,) = rng.choices(range(len(files)), sizes)
        path, bit = files[number], rng.randrange(8 * sizes[number])
        flip(path, bit)
        try:
            if is_detected():
                detected += 1
            else:
                print(f"not detected: bit {bit} of {path}")
        finally:
            flip(path, bit)
    return detected


def is_damaged(folder: str) -> bool:
    """Whether prepared data is refused."""
    try:
        manifest.Manifest.load(folder).verify()
    except ValueError:
        return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--checkpoints", type=int, default=200)
    parser.add_argument("--data", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    rng, folder = random.Random(flags.seed), pathlib.Path(flags.workdir, "checkpoints")
    step = max(int(path.name.split(".")[0]) for path in folder.glob("*.sha256.json"))
    checkpoint = folder / str(step)
    prepared = store.load(flags.workdir).data_dir(flags.workdir)
    assert not find_corruption(checkpoint) and not is_damaged(prepared)
    files = sorted(path for path in checkpoint.rglob("*") if path.stat().st_size and path.is_file())
    found = count_detected(files, flags.checkpoints, lambda: bool(find_corruption(checkpoint)), rng)
    described = [pathlib.Path(prepared, manifest.NAME)]
    shards = sorted(pathlib.Path(prepared).glob("*.array_record"))
    vocabulary = [path for path in pathlib.Path(prepared).glob("vocab.*")]
    half = flags.data // 2
    damaged = lambda: is_damaged(prepared)  # noqa: E731
    seen = count_detected(described, half, damaged, rng)
    seen += count_detected(shards + vocabulary, flags.data - half, damaged, rng)
    print(f"checkpoints: {found} of {flags.checkpoints} bits in {len(files)} files detected")
    print(f"data: {seen} of {flags.data} bits detected, {half} of them in {manifest.NAME}")
    assert not find_corruption(checkpoint) and not is_damaged(prepared)
    return int(found < flags.checkpoints or seen < flags.data)


if __name__ == "__main__":
    sys.exit(main())
