"""The user's cache folder, for files that can be made again."""

import os


def cache_folder(name: str) -> str:
    """Returns the absolute path of this package's folder `name` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return os.path.join(os.path.abspath(os.path.expanduser(home)), "bert_jax", name)
