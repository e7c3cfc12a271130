"""Chinese: pre-training with the released vocabulary's size of 21,128, and fine-tuning.

    python -m bert_jax.main --config=configs/chinese.py --workdir=DIR \\
        --config.data.source=text:PATH --config.data.vocab=PATH/vocab.txt

102,882,442 parameters including both heads. Every Chinese character is a token, so the vocabulary
must contain them: the released one does; a trained one contains those of its text.

    python -m bert_jax.main --config=configs/chinese.py:xnli --config.init_from=BERT \\
        --workdir=DIR --config.data.train=TRAIN --config.data.eval=DEV

Sets: xnli, chnsenticorp, lcqmc (classification), msra_ner (entities), cmrc2018 (questions). The
published size was not run.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config

TEXT_SETS = ("xnli", "chnsenticorp", "lcqmc")
SETS = (*TEXT_SETS, "msra_ner", "cmrc2018")


def get_config(name: str = "") -> ConfigDict:
    if not name:
        return _pretraining()
    if name not in SETS:
        raise ValueError(f"Unknown set {name!r}. Available: {', '.join(SETS)}.")
    if name == "msra_ner":
        config = default_config("tagging").to_config_dict()
    elif name == "cmrc2018":
        config = default_config("span").to_config_dict()
        config.max_length = 512
    else:
        config = default_config("classification").to_config_dict()
    config.task.published = name
    return config


def _pretraining() -> ConfigDict:
    config = default_config("pretraining").to_config_dict()
    config.model.vocab_size = 21_128
    config.data.language = "zh"
    return config
