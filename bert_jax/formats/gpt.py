"""What the checkpoints of GPT in both programs share: the vocabulary and its special tokens.

The vocabulary is that of the released program, in two files, or a vocab.txt. The three special
tokens of fine-tuning follow the released pieces; most checkpoints have no embeddings for them.
"""

import os
from typing import Any

from bert_jax.formats.foreign import Choices, ForeignCheckpoint, sibling
from bert_jax.formats.hf_vocabulary import folder_vocabulary
from bert_jax.formats.weight_table import Arrays
from bert_jax.text.gpt_tokenizer import SPECIAL_TOKENS
from bert_jax.text.gpt_vocabulary import FILES, unpack
from bert_jax.text.tokenizers import Vocabulary, read_vocabulary


def gpt_checkpoint(
    path: str,
    format: str,
    model: dict[str, Any],
    vocabulary: Vocabulary,
    lowercase: bool,
    arrays: Arrays,
    note: str,
) -> ForeignCheckpoint:
    """Returns a checkpoint whose word embedding table grows by the special tokens it lacks."""
    new, notes = (), (note,)
    if vocabulary.kind == ".gpt":
        pieces, _ = unpack(vocabulary.content, vocabulary.path)
        new = tuple(token for token in SPECIAL_TOKENS if token not in pieces)
    if new:
        notes += (f"Embeddings of {', '.join(new)} are new: the checkpoint has none.",)
    return ForeignCheckpoint(
        path=path,
        format=format,
        task="causal_lm",
        model=model | {"vocab_size": model["vocab_size"] + len(new), "next_sentence": False},
        vocabulary=vocabulary,
        lowercase=lowercase,
        tensors=arrays,
        notes=notes,
        new_words=new,
    )


def find_vocabulary(path: str, choices: Choices) -> tuple[Vocabulary, bool]:
    """Returns the vocabulary chosen, or that in the folder, and whether text is lower cased."""
    chosen = choices.vocab
    if chosen or any(os.path.isfile(sibling(path, name)) for pair in FILES for name in pair):
        vocabulary = read_vocabulary(chosen or os.path.dirname(sibling(path, FILES[0][0])))
        if vocabulary.kind == ".gpt":
            return vocabulary, choices.lowercase is not False
    return folder_vocabulary(path, choices, frames=False)
