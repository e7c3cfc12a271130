"""The files of a tokenizer in a folder for transformers."""

import json
from typing import Any

from bert_jax.exchange.hf_families import Family
from bert_jax.exchange.loaded import LoadedModel
from bert_jax.formats.hf_tokenizer import tokenizer_config, tokenizer_json
from bert_jax.text.gpt_tokenizer import SPECIAL_TOKENS
from bert_jax.text.gpt_vocabulary import UNKNOWN, unpack


def tokenizer_files(model: LoadedModel, family: Family) -> dict[str, str]:
    """Returns the content of each file, by name, apart from vocab.txt or vocab.model.

    Raises:
      UserError: the run's vocabulary has no tokenizer.json.
    """
    length = model.config.model.max_position_embeddings
    content = model.vocabulary.content
    if model.vocabulary.kind == ".gpt":
        return _gpt_files(model, content, length)
    tokenizer = tokenizer_json(model.tokenizer, content)
    settings = tokenizer_config(model.tokenizer, length)
    if not family.frames_text:  # text to be continued does not end in [SEP]
        tokenizer["post_processor"] = None
    if not family.has_token_types:
        # GPT's class in transformers would add the embeddings of the words 0 and 1 for them, and
        # ModernBERT's classes refuse them.
        settings["model_input_names"].remove("token_type_ids")
    return {
        "tokenizer.json": json_text(tokenizer),
        "tokenizer_config.json": json_text(settings),
    }


def _gpt_files(model: LoadedModel, content: bytes, length: int) -> dict[str, str]:
    """Returns the files of the released vocabulary, with the special tokens at its end."""
    _, merges = unpack(content, model.vocabulary.path)
    ids = {piece: number for number, piece in enumerate(model.tokenizer.pieces)}
    settings = {
        "tokenizer_class": "OpenAIGPTTokenizer",
        "model_max_length": length,
        "unk_token": UNKNOWN,
        "additional_special_tokens": list(SPECIAL_TOKENS),
    }
    return {
        "vocab.json": json.dumps(ids, ensure_ascii=False) + "\n",
        "merges.txt": "".join(f"{line}\n" for line in ("#version: 0.2", *map(" ".join, merges))),
        "tokenizer_config.json": json_text(settings),
    }


def json_text(content: dict[str, Any]) -> str:
    """Returns the text of a JSON file."""
    return json.dumps(content, indent=1) + "\n"
