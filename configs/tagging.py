"""Tags of the words of your own sentences, such as named entities.

    python -m bert_jax.main --config=configs/tagging.py --config.init_from=BERT \\
        --config.data.train=train.conll --config.data.eval=dev.conll --workdir=DIR

The files are in CoNLL format, with the word first and the tag last (IOB1, IOB2 or IOBES; files to
predict have no tag), or JSON lines with `tokens` and `tags`. `task.head` is linear, crf, bilstm
or bilstm_crf. `configs/tagging.py:words` is for tags of single words, such as parts of speech. All
fields are in docs/configuration.md.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config


def get_config(tags: str = "entities") -> ConfigDict:
    return default_config("tagging", tags).to_config_dict()
