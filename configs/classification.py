"""Classification or regression of your own texts or pairs of texts.

    python -m bert_jax.main --config=configs/classification.py --config.init_from=BERT \\
        --config.data.train=train.tsv --config.data.eval=dev.tsv --workdir=DIR

TSV, CSV or JSON lines; `data.text_a`, `data.text_b` and `data.label` name the columns.
`head.labels=multi` for any number of labels (`data.label_separator`, or several columns of 0 and
1: `data.label=a,b,c`), `head.labels=regression` for numbers, which have other scores:
`metrics=('pearson',)` and `checkpoint.best_metric=pearson`. Of classes there are accuracy, f1 (of
two labels the second in the order of the alphabet), macro_f1 and matthews. finetuning.py explains
every field.
"""

from ml_collections import ConfigDict

from configs import finetuning


def get_config() -> ConfigDict:
    return finetuning.get_config("classification")
