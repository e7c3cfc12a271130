"""Models of the Hugging Face hub by name: `hf://OWNER/NAME`, or the name alone.

The package `huggingface_hub` downloads them to its cache, once, and reads its own settings:
HF_HOME (the cache), HF_ENDPOINT (another server), HF_HUB_OFFLINE=1 (the cache only), HF_TOKEN.
A path that exists is never taken for a name.
"""

import functools
import os
import re
from typing import Any

from bert_jax.files.buckets import local
from bert_jax.files.errors import UserError

SCHEME = "hf://"
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
    """Returns the path of a model: a path here, that of a copy of a bucket, or of the hub's cache.

    Args:
      model: a path, an address in a bucket, `hf://NAME`, or a NAME of the hub; a NAME may end in
        `@REVISION`. Anything else is returned as it is.

    Raises:
      UserError: the hub has no such model or cannot be reached, or huggingface_hub is missing.
    """
    if model.startswith(SCHEME):
        return _snapshot(model.removeprefix(SCHEME).rstrip("/"), is_name=True)
    path = local(model)
    if path != model or os.path.exists(path) or not _NAME.fullmatch(model):
        return path
    return _snapshot(model, is_name=False)


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
