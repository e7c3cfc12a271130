"""The BabyLM challenge's strict-small track: a model of at most 10 million words of your text.

    python -m bert_jax.main --config=configs/babylm.py:plain --workdir=DIR \\
        "--config.data.source=text:train_10M/*.train"
    bert_jax convert to_hf DIR FOLDER --milestones

The argument is plain (the default), record (both as in fast.py, but for vocabulary, masks, initial
embeddings, batches and rows) or gpt_bert: plain, with masked tokens predicted from the position
before them and every 16th step on next tokens (Charpentier & Samuel 2024). They have the size tiny;
plain_mini, plain_small, ... are larger.

Training takes 10 epochs, the most that the track allows (2025): at most 100 million words.
Checkpoints after 1, 2, ... 10, 20, ... million words are kept, and the second command writes them
as FOLDER/chck_1M, ... for transformers. A text of more than 10 million words is refused; 1 % of its
documents are held out, and are not trained on, so that no run reaches 100 million: use its last
model in place of chck_100M (`bert_jax convert to_hf DIR FOLDER/main`). docs/grammar.md has more.

Cost: 10 epochs on 8.8 million words of novels and speech are some 16,000 steps of plain, an hour on
2 CPU cores with AVX-512, or four hours of plain_mini (9,500 tokens/s). docs/grammar.md has scores.
"""

from ml_collections import ConfigDict

from configs import fast

RECIPES = {
    f"{recipe}{suffix}": (recipe, size)
    for recipe in ("plain", "record", "gpt_bert")
    for suffix, size in (("", "tiny"), ("_mini", "mini"), ("_small", "small"))
}


def get_config(name: str = "plain") -> ConfigDict:
    if name not in RECIPES:
        raise ValueError(f"Unknown recipe {name!r}. Available: {', '.join(RECIPES)}.")
    recipe, size = RECIPES[name]
    config = fast.make_recipe(recipe, size)
    if recipe == "gpt_bert":
        config.model.predicts_next = True
        config.causal_share = 1 / 16

    # Batches of 8,192 tokens: as fast or faster on two cores, and no worse per token at hidden size
    # 256 (docs/log/recipes.md).
    config.phases = tuple((length, share, 4 * rows) for length, share, rows in config.phases)
    config.model.vocab_size = 8192  # as BabyBERTa (Huebner et al. 2021)
    # 0.035 bits per character after 2,200 steps, perhaps a point of Zorro (docs/log/recipes.md).
    config.init_embeddings = "spectral"
    # Scores of minimal pairs see [MASK], never another token in its place (Huebner et al. 2021).
    config.data.mask_share, config.data.keep_share, config.data.random_share = 1.0, 0.0, 0.0
    config.data.source = ""  # there is no default text
    # The track's files have a sentence or a paragraph per line, and few blank lines.
    config.data.document_separator = "line"
    config.data.max_words = 10_000_000
    config.data.max_examples_per_row = 16  # short lines fill a row too
    if recipe != "record":  # which copies from other lines
        # Lines do not attend to each other: a sentence is alone, as when minimal pairs are scored.
        config.data.segments = "doc_sentences"
    config.data.validation_share = 0.01
    config.epochs = 10.0

    millions = (*range(1, 11), *range(20, 101, 10))
    config.checkpoint.milestones = tuple(f"{number}e6 words" for number in millions)
    config.checkpoint.every = "2%"
    config.eval.every = "5%"
    config.log.every = "50"
    return config
