"""A hook of mkdocs: files outside docs/ and the notebook are linked in the repository."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\]\((?:\.\./([^)]+)|(tour\.ipynb))\)")


def on_page_markdown(markdown: str, *, config: Any, **_: Any) -> str:
    """Returns the page with `../FILE` replaced by the file's address in the repository."""
    files = f"{config.repo_url}/blob/main/"
    return _OUTSIDE.sub(lambda m: f"]({files}{m[1] or 'docs/' + m[2]})", markdown)
