"""The code of docs/checkpoints.md."""

import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "checkpoints.md"


def documented_code(word: str) -> str:
    """Returns the fenced block of Python that has a word."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if word in block]
    return block
