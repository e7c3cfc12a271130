"""Checks of the files that a trained model reads and writes."""

import os

from bert_jax.files.errors import UserError


def check_files(input_path: str, output_path: str) -> None:
    """Checks before long work that files can be read and written; an empty path is no file.

    Raises:
      UserError: the input does not exist, the folder of the output does not exist, the output is
        a folder, or both are the same file.
    """
    if input_path and not os.path.isfile(input_path):
        raise UserError(f"--input={input_path}: there is no such file.")
    if not output_path:
        return
    if not os.path.isdir(folder := os.path.dirname(output_path) or "."):
        raise UserError(f"--output={output_path}: there is no folder {folder}.")
    if os.path.isdir(output_path):
        raise UserError(f"--output={output_path} is a folder: name a file in it.")
    if input_path and os.path.exists(output_path) and os.path.samefile(input_path, output_path):
        raise UserError(f"--output={output_path} is the input: name another file.")
