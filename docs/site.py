"""A hook of mkdocs: files outside docs/ and the notebook are linked in the repository."""

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\]\(([^):#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Returns the page with links to files outside the site replaced by repository addresses."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def link(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[1]))
        if path.startswith("docs/") and not path.endswith(".ipynb"):
            return match[0]
        return f"]({config.repo_url}/blob/main/{path}{match[2] or ''})"

    return _LINK.sub(link, markdown)
