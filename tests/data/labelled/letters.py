"""A tokenizer whose words are letters, so that rows can be written out by hand."""

from bert_jax.text.tokenization import SPECIAL_TOKENS
from bert_jax.text.wordpiece import WordPieceTokenizer

# a is 5, h is 12, ##x is 13.
PIECES = [*SPECIAL_TOKENS, *"abcdefgh", "##x", *"中文国.-1", "##9"]
TOKENIZER = WordPieceTokenizer("\n".join(PIECES).encode(), lowercase=True)
