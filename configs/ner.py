"""Named entities: conll2003, wnut17, wikigold (paper, section 5.3).

    python -m bert_jax.main --config=configs/ner.py:conll2003 --config.init_from=BERT \\
        --config.data.train=eng.train --config.data.eval=eng.testa --workdir=DIR

Time and result: wikigold from all-MiniLM-L6-v2 takes under 3 minutes on 2 CPU cores, entity F1
0.646 ± 0.006 on a fifth of the file (5 seeds); wnut17 0.569 ± 0.011 on its development set (3).

The paper reports an F1 of 92.4 for cased BERT-Base on the test set of conll2003. For the
feature-based approach of its Table 7, add --config.optimizer.frozen_layers=-1
--config.task.layers=concat_last_4 --config.task.head=bilstm
--config.optimizer.learning_rate=1e-3
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config

SETS = ("conll2003", "wnut17", "wikigold")


def get_config(name: str = "conll2003") -> ConfigDict:
    if name not in SETS:
        raise ValueError(f"Unknown set {name!r}. Available: {', '.join(SETS)}.")
    config = default_config("tagging").to_config_dict()
    config.optimizer.learning_rate = 5e-5
    config.global_batch_size = 16
    if name == "conll2003":
        config.task.document_context = True
        config.max_length = 256
        config.published_score = 0.964
        config.published_in = "BERT-Base, development set (Devlin et al. 2019, Table 7)"
    else:
        # Small sets need a higher learning rate and more epochs than in the paper, and bias
        # correction (Mosbach et al. 2021, section 5).
        config.epochs = 4.0
        config.optimizer.learning_rate = 1e-4
        config.optimizer.name = "adamw"
        config.optimizer.schedule = "linear"
    return config
