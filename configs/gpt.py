"""GPT pre-training (Radford et al. 2018, section 4.1): next tokens of running text.

    python -m bert_jax.main --config=configs/gpt.py --workdir=DIR --config.data.source=text:PATH
    python -m bert_jax.main --config=configs/gpt.py:tiny --workdir=DIR

12 layers, hidden size 768, 12 heads, 512 positions; 100 epochs of batches of 64 x 512 tokens. A
byte-pair vocabulary of the published size is trained on the text: 40,478 pieces and three special
tokens. `tiny` is for a laptop: 2 layers, hidden size 128, and what configs/tiny.py changes besides.
The paper does not give epsilon and clipping: they are those of the released fine-tuning code.
Results at a small scale are in docs/comparison.md; the published size was not run.
"""

from ml_collections import ConfigDict

from bert_jax.tasks import default_config
from configs import bert

SIZES = ("base", "tiny")


def get_config(size: str = "base") -> ConfigDict:
    if size not in SIZES:
        raise ValueError(f"Unknown size {size!r}. Available: {', '.join(SIZES)}.")
    config = default_config("causal_lm").to_config_dict()
    config.model.name = "gpt"
    del config.model["type_vocab_size"]
    config.model.vocab_size = 40_481
    config.model.initializer = "normal"
    config.model.layer_norm_epsilon = 1e-5
    config.model.mask_value = -1e9
    config.model.lm_head = "tied"

    config.epochs = 100.0
    config.phases = ((512, 1.0),)
    config.global_batch_size = 64
    config.data.segments = "running_text"
    config.data.vocab = "train:bpe"
    config.metrics += ("word_perplexity", "bits_per_character")

    config.optimizer.name = "gpt_adam"
    config.optimizer.learning_rate = 2.5e-4
    config.optimizer.schedule = "gpt_cosine"
    config.optimizer.warmup = "2000"
    config.optimizer.epsilon = 1e-8
    config.optimizer.no_decay = ()  # gpt_adam: all matrices decay, and nothing else
    return _make_tiny(config) if size == "tiny" else config


def _make_tiny(config: ConfigDict) -> ConfigDict:
    config.model.num_layers = 2
    config.model.hidden_size = 128
    config.model.num_heads = 2
    config.model.intermediate_size = 512

    config.epochs = 0.0
    return bert.for_a_laptop(config)
