"""Models by name: `hf://OWNER/NAME` or OWNER/NAME, and `package:NAME/FOLDER`.

The first are models of the Hugging Face hub, the others folders of installed Python packages. The
package `huggingface_hub` downloads from the hub to its cache, once, and reads its own settings:
HF_HOME (the cache), HF_ENDPOINT (another server), HF_HUB_OFFLINE=1 (the cache only), HF_TOKEN.
A path that exists is never taken for a name.
"""

import functools
import importlib.util
import os
import re
from typing import Any

from bert_jax.files.buckets import local
from bert_jax.files.errors import UserError

SCHEME, PACKAGE = "hf://", "package:"
_NAME = re.compile(r"[\w.-]*\w(/[\w.-]*\w)?(@[\w./-]+)?")
# What this package reads; of weights only those in safetensors.
_FILES = (
    *("config.json", "*.safetensors", "*.safetensors.index.json", "vocab.txt", "vocab.json"),
    *("merges.txt", "*.model", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "adapter_config.json"),
    *("modules.json", "*/config.json", "sentence_*_config.json", "config_sentence_*.json"),
    "modeling_bert_jax.py",
)


def local_model(model: str) -> str:
    """Returns the path of a model: a local one, that of a bucket's copy, or one in the hub's cache.

    Args:
      model: a path, an address in a bucket, `hf://NAME`, or a NAME of the hub, which may end in
        `@REVISION`; or `package:NAME/FOLDER`, a folder of an installed Python package, which is not
        imported. Anything else is returned as it is.

    Raises:
      UserError: the hub has no such model or cannot be reached, or huggingface_hub is missing; the
        package is not installed, or has no such folder.
    """
    if model.startswith(PACKAGE):
        return _folder_of_package(model.removeprefix(PACKAGE).rstrip("/"))
    if model.startswith(SCHEME):
        return _snapshot(model.removeprefix(SCHEME).rstrip("/"), is_name=True)
    path = local(model)
    if path != model or os.path.exists(path) or not _NAME.fullmatch(model):
        return path
    return _snapshot(model, is_name=False)


def _folder_of_package(name: str) -> str:
    package, _, folder = name.partition("/")
    # A dot would import the parent package, or be relative to none.
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"{PACKAGE}{name}: no package {package} is installed here; give {PACKAGE}NAME/FOLDER"
            " with the name that Python imports, which has _ for the - of pip."
        )
    root = spec.submodule_search_locations[0]
    path = os.path.join(root, folder)
    if not os.path.isdir(path):
        found = ", ".join(sorted(entry.name for entry in os.scandir(root) if entry.is_dir()))
        raise UserError(
            f"{PACKAGE}{name}: {root} has no folder {folder}; it has {found or 'none'}."
        )
    return path


@functools.cache
def _snapshot(name: str, is_name: bool) -> str:
    """Returns the folder in the cache; `is_name`: it is not a path that might be misspelt."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{SCHEME}{name} is not a name of the hub: give {SCHEME}OWNER/NAME.")
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        if not is_name:
            return name  # the caller reports that there is no such path
        raise UserError(
            f"{SCHEME}{name} needs the package huggingface_hub: pip install 'bert_jax[hub]'."
        ) from None
    missing = "" if is_name else f"{name}: no such file or folder here, and as a name of the hub: "
    repository, _, revision = name.partition("@")
    download: Any = huggingface_hub.snapshot_download
    try:
        return download(repository, revision=revision or None, allow_patterns=list(_FILES))
    except errors.GatedRepoError:
        why = "it is gated: accept its terms on the hub, and set HF_TOKEN"
    except errors.RepositoryNotFoundError:
        why = f"{_endpoint()} has no model {repository}, or it is private: then set HF_TOKEN"
    except errors.RevisionNotFoundError:
        why = f"{repository} has no revision {revision}: name a branch, a tag or a commit"
    except errors.LocalEntryNotFoundError:
        is_offline = huggingface_hub.constants.HF_HUB_OFFLINE
        where = "HF_HUB_OFFLINE is set" if is_offline else f"{_endpoint()} cannot be reached"
        why = f"{repository} is not in the cache, and {where}: run `hf download {repository}` first"
    except (OSError, ValueError) as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        why = f"{repository} cannot be downloaded from {_endpoint()} ({line})"
    raise UserError(f"{missing or f'{SCHEME}{name}: '}{why}.")


def _endpoint() -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT
