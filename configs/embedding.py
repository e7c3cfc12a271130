"""Embeddings of your own texts: vectors that are near for texts that belong together.

    python -m bert_jax.main --config=configs/embedding.py --config.init_from=BERT \\
        --config.data.train=train.tsv --config.data.eval=dev.tsv --workdir=DIR

The files are TSV, CSV or JSON lines with the columns `anchor` and `positive` (`task.text_a`,
`task.text_b`), and `task.negative` if there is a third text. `configs/embedding.py:scored` is for
pairs with a score: `sentence1`, `sentence2`, `score`. The loss is `task.loss`. Scores of
pairs are mrr_at_10, ndcg_at_10, accuracy and recall_at_10, each anchor against all positives of
the file; of scored pairs spearman and pearson. All fields are in docs/configuration.md.

Result: the quick start's encoder, three epochs on 3,080 pairs of docstrings: MRR@10 0.211 before
and 0.374 ± 0.001 after training (docs/embeddings.md).
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config


def get_config(kind: str = "pairs") -> ConfigDict:
    return default_config("embedding", kind).to_config_dict()
