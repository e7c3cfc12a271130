"""The words after a command of bert_jax.convert: a mistake is a ValueError of one line."""

import argparse
from typing import NoReturn


class Arguments(argparse.ArgumentParser):
    """An argument parser of the standard library that does not end the process."""

    def __init__(self, command: str, description: str):
        super().__init__(
            prog=f"python -m bert_jax.convert {command}",
            description=description,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}. {' '.join(self.format_usage().split())}")
