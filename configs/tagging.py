"""A tag for each word of your own sentences, such as named entities.

    python -m bert_jax.main --config=configs/tagging.py --config.init_from=BERT \\
        --config.data.train=train.conll --config.data.eval=dev.conll --workdir=DIR

CoNLL files, the word first and the tag last (IOB1, IOB2, IOBES; to predict without the tag), or
JSON lines with `tokens` and `tags`.
`head.tagging` is linear, crf, bilstm or bilstm_crf. `configs/tagging.py:words` is for tags that say
each for itself what a word is, such as parts of speech. finetuning.py explains every field.
"""

from ml_collections import ConfigDict

from configs import finetuning


def get_config(tags: str = "entities") -> ConfigDict:
    if tags not in ("entities", "words"):
        raise ValueError(f"There are no tags of {tags!r}: configs/tagging.py:entities, :words.")
    config = finetuning.get_config("tagging")
    # Of JSON lines; in CoNLL files the first column and the last one, or numbers from 0.
    config.data.text_a = ""
    config.data.label = ""
    config.data.batches = "tokens"
    config.head.entities = tags == "entities"
    config.metrics = ("f1", "precision", "recall", "accuracy")
    if tags == "words":
        config.metrics = ("accuracy",)
    config.checkpoint.best_metric = config.metrics[0]
    return config
