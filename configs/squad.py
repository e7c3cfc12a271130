"""SQuAD 1.1 and 2.0 (Rajpurkar et al.), as in sections 4.2 and 4.3 of the paper.

    python -m bert_jax.main --config=configs/squad.py:v1 --config.init_from=BERT \\
        --config.data.train=train-v1.1.json --config.data.eval=dev-v1.1.json --workdir=DIR

The paper reports an exact match of 80.8 and an F1 of 88.5 for BERT-Base on version 1.1. Here only
three articles were trained on (docs/log/finetuning.md).
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config

VERSIONS = ("v1", "v2")


def get_config(version: str = "v1") -> ConfigDict:
    if version not in VERSIONS:
        raise ValueError(f"Unknown version {version!r}. Available: {', '.join(VERSIONS)}.")
    config = default_config("span").to_config_dict()
    config.published_score = 88.5
    config.published_in = "BERT-Base, development set (Devlin et al. 2019, Table 2)"
    if version == "v2":
        config.published_score = 81.9
        config.published_in = "BERT-Large, development set (Devlin et al. 2019, Table 3)"
        config.epochs = 2.0
        config.global_batch_size = 48
        config.task.null_answers = True
        config.metrics = ("f1", "exact", "best_f1", "best_exact")
    return config
