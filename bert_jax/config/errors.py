"""Tells errors that the user can fix from defects of the program."""

import pathlib
import traceback

PACKAGE = str(pathlib.Path(__file__).parents[1])


def is_for_users(error: ValueError) -> bool:
    """Returns whether this package raised the error, rather than a library that it misused."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(PACKAGE)
