"""Answers to questions, as spans of a text, in your own files of SQuAD's form.

    python -m bert_jax.main --config=configs/span.py --config.init_from=BERT \\
        --config.data.train=train.json --config.data.eval=dev.json --workdir=DIR

`head.null_answers=true` where a question may have no answer. finetuning.py explains every field.
"""

from ml_collections import ConfigDict

from configs import finetuning


def get_config() -> ConfigDict:
    config = finetuning.get_config("span")
    # The paper's, section 4.2: 384 tokens, batches of 32, 5e-5.
    config.phases = ((384, 1.0),)
    config.optimizer.learning_rate = 5e-5
    config.metrics = ("f1", "exact_match")
    config.checkpoint.best_metric = "f1"
    return config
