"""Left-to-right BERT, "LTR & No NSP" of the paper (Devlin et al. 2019, section 5.1, Table 5).

    python -m bert_jax.main --config=configs/left_to_right.py --workdir=DIR \\
        --config.data.source=text:PATH
    python -m bert_jax.main --config=configs/left_to_right.py:mini --workdir=DIR

BERT's data and settings, with a causal mask and the prediction of the next token, by BERT's own
head, instead of masked tokens; without next sentences. The argument is the name of one of BERT's
configurations: base (the default), large, medium, small, mini, tiny. The rows are BERT's pairs;
`--config.data.segments=full_sentences` and `running_text` are the others. Results at a small scale
are in docs/comparison.md; base was not run.
"""

from ml_collections import ConfigDict

from configs import bert


def get_config(size: str = "base") -> ConfigDict:
    config = bert.get_config(size)
    config.task.name = "causal_lm"
    config.model.attention_pattern = "causal"
    config.model.next_sentence = False
    config.metrics = ("causal_lm_loss", "causal_lm_accuracy", "perplexity")
    return config
