"""Chinese: pre-training with the released vocabulary's size of 21,128, and fine-tuning.

    python -m bert_jax.main --config=configs/chinese.py --workdir=DIR \\
        --config.data.source=text:PATH --config.data.vocab=PATH/vocab.txt

102,882,442 parameters with both heads. Every Chinese character is a token, so that a vocabulary
must have them: the released one does, and a trained one has those of its text.

    python -m bert_jax.main --config=configs/chinese.py:xnli --config.init_from=BERT \\
        --workdir=DIR --config.data.train=TRAIN --config.data.eval=DEV

Sets: xnli, chnsenticorp, lcqmc (classification), msra_ner (entities), cmrc2018 (questions).
"""

from ml_collections import ConfigDict

from configs import base, finetuning, span, tagging

TEXT_SETS = ("xnli", "chnsenticorp", "lcqmc")
SETS = (*TEXT_SETS, "msra_ner", "cmrc2018")


def get_config(name: str = "") -> ConfigDict:
    if not name:
        return _pretraining()
    if name not in SETS:
        raise ValueError(f"There is no set {name!r}: configs/chinese.py:{', :'.join(SETS)}.")
    if name == "msra_ner":
        config = tagging.get_config()
    elif name == "cmrc2018":
        config = span.get_config()
        config.phases = ((512, 1.0),)
    else:
        config = finetuning.get_config("classification")
    config.data.published = name
    return config


def _pretraining() -> ConfigDict:
    config = base.get_config()
    config.model.vocab_size = 21_128
    config.data.language = "zh"
    return config
