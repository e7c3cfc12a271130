"""Which of several endings goes on from a text, in your own files.

    python -m bert_jax.main --config=configs/multiple_choice.py --config.init_from=BERT \\
        --config.data.train=train.csv --config.data.eval=dev.csv --workdir=DIR

CSV with a header, or JSON lines: `data.text_a` is the column of the context, `data.text_b` of what
every ending begins with (none if empty), `data.endings` the columns of the endings (all of the form
ending0, ending1, ... if empty), `data.label` the number of the right one, from 0. finetuning.py
explains every field.
"""

from ml_collections import ConfigDict

from configs import finetuning


def get_config() -> ConfigDict:
    config = finetuning.get_config("multiple_choice")
    config.data.text_a = "sent1"
    config.data.text_b = "sent2"
    # The paper's, section 4.4: batches of 16, 2e-5.
    config.global_batch_size = 16
    return config
