"""Folders of transformers and of the released GPT, and their imports."""

import json
import pathlib

from safetensors.numpy import load_file, save_file

from bert_jax.__main__ import main as run_command
from bert_jax.config.run import PretrainingConfig
from bert_jax.config.task import default_config
from bert_jax.exchange import LoadedModel
from bert_jax.training.workdir import open_workdir
from tests.tools.convert.conftest import LETTERS, VOCABULARY

PIECES = len(VOCABULARY.split("\n"))
GPT_PIECES = ["<unk>", *LETTERS, *(f"{c}</w>" for c in LETTERS), "th", "the</w>"]
GPT_MERGES = ["t h", "th e</w>"]
_BERT = {
    "vocab_size": PIECES,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
_ROBERTA = _BERT | {"max_position_embeddings": 42, "pad_token_id": 1}
# By the beginning of the names of classes.
SIZES = {
    "Bert": _BERT,
    "DistilBert": {
        **{"vocab_size": PIECES, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
        "max_position_embeddings": 40,
    },
    "Electra": _BERT | {"embedding_size": 8},
    "Roberta": _ROBERTA | {"type_vocab_size": 2},  # of which all tokens have the first
    "XLMRoberta": _ROBERTA | {"type_vocab_size": 1},
    "ModernBert": _BERT
    | {"num_hidden_layers": 4, "intermediate_size": 24, "local_attention": 8, "pad_token_id": 0}
    | dict.fromkeys(f"{name}_token_id" for name in ("bos", "eos", "cls", "sep")),
    "OpenAIGPT": {
        **{"vocab_size": len(GPT_PIECES), "n_positions": 40, "n_embd": 16},
        **{"n_layer": 2, "n_head": 2},
    },
}
# Of a layer, in the order of the released files: transformers' names, and shapes as multiples of
# the hidden size; the released names have "/w", "/g" and "/b" at their ends.
RELEASED = (
    ("attn.c_attn.weight", (1, 1, 3)),
    ("attn.c_attn.bias", (3,)),
    ("attn.c_proj.weight", (1, 1, 1)),
    ("attn.c_proj.bias", (1,)),
    ("ln_1.weight", (1,)),
    ("ln_1.bias", (1,)),
    ("mlp.c_fc.weight", (1, 1, 4)),
    ("mlp.c_fc.bias", (4,)),
    ("mlp.c_proj.weight", (1, 4, 1)),
    ("mlp.c_proj.bias", (1,)),
    ("ln_2.weight", (1,)),
    ("ln_2.bias", (1,)),
)


def layer_shapes(hidden):
    """Returns the shapes of a layer; the first dimension of a kernel is 1, its width."""
    return [
        (1, *(hidden * n for n in times[1:])) if len(times) == 3 else (hidden * times[0],)
        for _, times in RELEASED
    ]


def new_config(init_from: pathlib.Path, **changes) -> PretrainingConfig:
    """Returns a configuration of pre-training with `init_from`; dots of fields as __."""
    values = {k.replace("__", "."): v for k, v in changes.items()}
    values = {"init_from": str(init_from), "phases": ((16, 1.0),)} | values
    return default_config("pretraining").replace(values)


def write_gpt_vocabulary(folder: pathlib.Path, pieces: str, merges: str) -> None:
    (folder / pieces).write_text(json.dumps({p: i for i, p in enumerate(GPT_PIECES)}))
    (folder / merges).write_text("\n".join(["#version: 0.2", *GPT_MERGES, ""]))


def write_byte_level(folder: pathlib.Path) -> None:
    """Writes the tokenizer.json of a byte-level BPE with the pieces of letters, PIECES in all."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *LETTERS, "Ġ", *(f"Ġ{c}" for c in LETTERS[1:])]
    ids = {piece: index for index, piece in enumerate([*pieces, "<mask>"])}
    assert len(ids) == PIECES
    rules = {"special": True, "normalized": False, "lstrip": False, "rstrip": False}
    special = [*pieces[:4], "<mask>"]
    content = {
        "added_tokens": [
            {"id": ids[s], "content": s, "single_word": False, **rules} for s in special
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "post_processor": {
            **{"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]},
            **{"trim_offsets": True, "add_prefix_space": False},
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
        "model": {"type": "BPE", "vocab": ids, "merges": [["Ġ", c] for c in LETTERS[1:]]},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False))


def edit(folder: pathlib.Path, change, file="model.safetensors") -> None:
    """Rewrites the tensors of a folder."""
    arrays = load_file(folder / file)
    change(arrays)
    save_file(arrays, folder / file, {"format": "pt"})


def edit_config(folder: pathlib.Path, file="config.json", **changes) -> None:
    values = json.loads((folder / file).read_text()) | changes
    (folder / file).write_text(json.dumps({k: v for k, v in values.items() if v is not None}))


def from_hf(folder: pathlib.Path, *words: str, compare: bool = False) -> LoadedModel:
    """Imports to the folder `out` next to the folder."""
    flags = [*words, *([] if compare else ["--nocomparison"])]
    return run_import("from_hf", folder, *flags)


def run_import(command: str, folder: pathlib.Path, *words: str) -> LoadedModel:
    """Imports to the folder `out` next to the folder."""
    out = folder.parent / "out"
    run_command(["convert", command, str(folder), str(out), *words])
    return open_workdir(str(out))


def read_certificate(folder: pathlib.Path) -> dict:
    return json.loads((folder.parent / "out" / "certificate.json").read_text())


def worst(certificate: dict) -> float:
    """Returns the largest difference of a certificate's comparison."""
    return max(certificate["comparison"]["largest_difference"].values())
