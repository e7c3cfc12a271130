"""Which data a folder has or is getting: requests and locks.

A request is JSON that identifies data: the settings that determine them, and the fingerprint of the
text. A folder has data for one request.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from bert_jax.config.data import DataConfig, num_frequent, parse_weights
from bert_jax.data.corpus.manifest import NAME, Manifest
from bert_jax.files.atomic import read_json, write_json
from bert_jax.files.buckets import claim, local
from bert_jax.files.checksums import file_sha256
from bert_jax.files.errors import UserError
from bert_jax.files.workers import Log
from bert_jax.text.extra_tokens import count_extra_tokens
from bert_jax.text.lexicon import check_classes, read_lexicon
from bert_jax.text.sources import Source, make_source
from bert_jax.text.tokenization import Tokenizer
from bert_jax.text.tokenizers import load_tokenizer, read_vocabulary
from bert_jax.text.vocabulary import FILE_NAMES, check_vocabulary

# Prefix of data.vocab for a vocabulary that is to be trained.
TRAIN = "train:"
# In a bucket, the request of whoever prepares data there, until they are finished.
CLAIM = "preparing.json"


def check_files(config: DataConfig) -> str:
    """Checks the vocabulary and the lexicon before any work.

    Returns:
      The name of the vocabulary in the folder of the data.

    Raises:
      UserError: one is unknown, malformed or cannot be read, or the vocabulary is too large.
    """
    if config.vocab.startswith(TRAIN):
        if not (name := FILE_NAMES.get(config.vocab.removeprefix(TRAIN), "")):
            raise UserError(
                f"Unknown data.vocab={config.vocab!r}. Available: a vocab.txt or .model file, GPT's"
                f" folder, {', '.join(TRAIN + kind for kind in FILE_NAMES)}."
            )
    else:
        tokenizer = load_tokenizer(config.vocab, config.lowercase)
        check_vocabulary(tokenizer, config.vocab_size, config.vocab)
        if config.extra_tokens:
            _check_extra_tokens(config, tokenizer)
        name = read_vocabulary(config.vocab).copy_name
    if config.lexicon:
        entries = read_lexicon(config.lexicon)
        check_classes(parse_weights(config.lexicon_weights), entries, config.lexicon)
    return name


def _check_extra_tokens(config: DataConfig, tokenizer: Tokenizer) -> None:
    number = count_extra_tokens(config.extra_tokens, tokenizer)
    if (size := len(tokenizer.pieces) + number) > config.vocab_size:
        raise UserError(
            f"data.extra_tokens={config.extra_tokens} adds {number} words to the"
            f" {len(tokenizer.pieces)} entries of {config.vocab}, more than model.vocab_size="
            f"{config.vocab_size}: set model.vocab_size={size}."
        )


def make_request(config: DataConfig, source: Source) -> dict[str, Any]:
    """Returns the JSON that identifies the data: `settings` and the fingerprint of `source`."""
    return {"settings": _settings(config), "source": source.fingerprint()}


def _settings(config: DataConfig) -> dict[str, Any]:
    """Returns the settings that determine the data, with the hash of a given vocabulary."""
    settings = config.shard_settings()
    if config.mode == "dynamic" and config.lexicon_weights:
        # Rows store the numbers of these classes; the weights are used when masks are drawn.
        settings["lexicon_classes"] = tuple(parse_weights(settings.pop("lexicon_weights")))
    if config.lexicon:
        name = os.path.basename(config.lexicon)
        settings["lexicon"] = f"{name} (SHA-256 {file_sha256(local(config.lexicon))})"
    if config.extra_tokens and not num_frequent(config.extra_tokens):
        name = os.path.basename(config.extra_tokens)
        sha256 = file_sha256(local(config.extra_tokens))
        settings["extra_tokens"] = f"{name} (SHA-256 {sha256})"
    if not config.vocab.startswith(TRAIN):
        given = read_vocabulary(config.vocab)
        settings["vocab"] = f"{given.name} (SHA-256 {hashlib.sha256(given.content).hexdigest()})"
        del settings["vocab_size"]
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()
    }


def find_prepared(config: DataConfig, data_dir: str, log: Log) -> Manifest | None:
    """Returns the data in the folder, if they are complete; writes nothing.

    Raises:
      UserError: the data have other settings, another text or too many words, or the manifest is
        corrupt.
    """
    if not os.path.exists(os.path.join(data_dir, NAME)):
        return None
    manifest = Manifest.load(data_dir)
    request: dict[str, Any] = {"settings": _settings(config)}
    try:
        request["source"] = make_source(config).fingerprint()
    except UserError as error:
        # Prepared data can be used without the text.
        log(f"The text cannot be compared with the prepared data: {error}")
    present = {name: manifest.content[name] for name in request}
    if difference := _differences(present, request):
        raise UserError(
            f"{data_dir} has data of other settings ({difference}): use those, or another folder"
            " (data.dir), or delete this one."
        )
    check_max_words(config, manifest.words)
    log(f"Using the prepared data in {data_dir}.")
    return manifest


def claim_folder(folder: str, request: dict[str, Any], log: Log) -> None:
    """Creates the folder of unfinished work, or checks that it is for the same request.

    Raises:
      UserError: it is for another request.
    """
    path = os.path.join(folder, "request.json")
    content = json.dumps(request, sort_keys=True).encode()
    other = json.loads(claim(os.path.join(os.path.dirname(folder), CLAIM), content))
    if difference := _differences(other, json.loads(content)):
        raise UserError(
            f"Other settings are being prepared in {os.path.dirname(folder)} ({difference}): use"
            f" those, or another folder (data.dir), or delete {CLAIM} there if nobody is."
        )
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        write_json(path, request)
    elif difference := _differences(read_json(path), request):
        raise UserError(
            f"{folder} has unfinished work of other settings ({difference}): use those, or another"
            " folder (data.dir), or delete this one."
        )
    else:
        log(f"Continuing the unfinished work in {folder}.")


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Returns the first settings in which two requests differ: "seed: 1 there, 2 requested"."""
    before, after = dict(_flatten(old)), dict(_flatten(new))
    names = [name for name in sorted(before | after) if before.get(name) != after.get(name)]
    texts = [
        f"{name.removeprefix('settings.')}: {before.get(name, 'nothing')} there,"
        f" {after.get(name, 'nothing')} requested"
        for name in names[:3]
    ]
    return "; ".join(texts + [f"and {len(names) - 3} more"] * (len(names) > 3))


def _flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flatten(item, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        yield from _flatten({str(item.get("name", i)): item for i, item in enumerate(value)}, name)
    else:
        yield name, value


def check_max_words(config: DataConfig, words: Mapping[str, int]) -> None:
    """Raises UserError for more words in all splits together than `data.max_words`."""
    if config.max_words and not words:
        raise UserError(
            f"The prepared data of data.source={config.source!r} are from a version that did not"
            f" count words, so data.max_words={config.max_words:,} cannot be checked: delete them,"
            " or set data.max_words=0."
        )
    if config.max_words and sum(words.values()) > config.max_words:
        raise UserError(
            f"data.source={config.source!r} has {sum(words.values()):,} words, held-out ones"
            f" included, more than data.max_words={config.max_words:,}: give less text, or set"
            " data.max_words=0 for any number."
        )


@contextlib.contextmanager
def lock(data_dir: str, log: Log) -> Iterator[None]:
    """Waits until no other process prepares data in the folder; locks it until the block ends."""
    with open(os.path.join(data_dir, ".lock"), "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            log(f"Waiting for {file.read()}, which prepares data in {data_dir}.")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
