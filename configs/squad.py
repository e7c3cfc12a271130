"""SQuAD 1.1 and 2.0 (Rajpurkar et al.), as in sections 4.2 and 4.3 of the paper.

    python -m bert_jax.main --config=configs/squad.py:v1 --config.init_from=BERT \\
        --config.data.train=train-v1.1.json --config.data.eval=dev-v1.1.json --workdir=DIR

The paper has 80.8 exact match and 88.5 F1 with BERT-Base on version 1.1.
"""

from ml_collections import ConfigDict

from configs import span

VERSIONS = ("v1", "v2")


def get_config(version: str = "v1") -> ConfigDict:
    if version not in VERSIONS:
        raise ValueError(f"There is no SQuAD {version!r}: configs/squad.py:v1 or :v2.")
    config = span.get_config()
    if version == "v2":
        config.epochs = 2.0
        config.global_batch_size = 48
        config.head.null_answers = True
        config.metrics = ("f1", "exact", "best_f1", "best_exact")
    return config
