"""The systems that the paper compares, and how they are pre-trained at each scale.

`paper` leaves everything to the configuration of the system. `mini` and `tiny` are for 2 cores:
norm before the sub-layers, rotary positions, larger initial weights, bias correction and a high
rate, with which Transformers learn from context within 1,000 steps; with the paper's settings
they hardly learn more than the frequencies of words. All systems have the same number of steps
and of tokens in a step; all Transformers have the same optimizer, and ELMo has its own.
"""

from typing import Any, NamedTuple

from bert_jax.tools.sweep.plan import Run
from configs.sweeps.tasks import parse_overrides

SCALES = ("paper", "mini", "tiny")


class System(NamedTuple):
    """A pre-trained encoder, or one of another system with another head.

    Attributes:
      title: of its row.
      config: configuration file of its pre-training.
      small_config: the same at a small scale, if it is another one.
      sizes: scale -> its overrides in place of the sizes of a Transformer.
      pretraining: overrides of its pre-training.
      finetuning: overrides of each fine-tuning at a small scale.
      bilstm: whether a randomly initialized BiLSTM is on top when it is fine-tuned.
      encoder: the system whose pre-trained encoder it takes; empty: its own.
      takes_vocabulary: whether it takes the vocabulary of the first run at a small scale, so that
        systems are compared, not vocabularies.
    """

    title: str
    config: str = ""
    small_config: str = ""
    sizes: dict[str, dict[str, Any]] | None = None
    pretraining: dict[str, Any] = {}
    finetuning: dict[str, Any] = {}
    bilstm: bool = False
    encoder: str = ""
    takes_vocabulary: bool = False


# Adam does not learn with ELMo's sampled softmax: the loss over all words rises while that of the
# samples falls. Adagrad, which ELMo has, does.
_STREAMS = {
    "phases": ((32, 1.0),),
    "global_batch_size": 64,
    "data.line_format": "paragraphs",
    "optimizer.name": "adagrad",
    "optimizer.learning_rate": 0.2,
    "optimizer.schedule": "constant",
    "optimizer.warmup": "0",
}
SYSTEMS = {
    "bert": System("BERT", "configs/base.py"),
    "no_nsp": System("No NSP", "configs/base.py", pretraining={"model.next_sentence": False}),
    "ltr": System("LTR & No NSP", "configs/left_to_right.py"),
    "ltr_bilstm": System("+ BiLSTM", bilstm=True, encoder="ltr"),
    "gpt": System("GPT", "configs/gpt.py", takes_vocabulary=True),
    # Rows are 32 steps of time. Without the softmax, 2.5 million parameters at the scale mini.
    "elmo": System(
        "ELMo",
        "configs/elmo.py",
        small_config="configs/elmo.py:small",
        sizes={
            "mini": _STREAMS,
            "tiny": _STREAMS | {"model.hidden_size": 128, "model.cell_size": 256},
        },
        finetuning={"optimizer.learning_rate": 1e-3},
    ),
}

# A pre-training at a small scale: its length and text, evaluations and checkpoints.
SHORT = {
    "steps": 1000,
    "epochs": 0.0,
    "phases": ((128, 1.0),),
    "global_batch_size": 16,
    "data.dupe_factor": 1,
    "data.validation_share": 0.02,
    "log.every": "2%",
    "eval.every": "50%",
    "eval.max_batches": 40,
    "checkpoint.every": "10%",
}
_TRAINING = {
    "paper": {},
    "mini": SHORT
    | {
        "optimizer.name": "adamw",
        "optimizer.schedule": "linear",
        "optimizer.learning_rate": 1.2e-3,
        "optimizer.beta2": 0.98,
        "optimizer.warmup": "5%",
    },
}
_TRAINING["tiny"] = _TRAINING["mini"]
_SIZES = {
    "paper": {},
    "mini": {
        "model.num_layers": 4,
        "model.hidden_size": 256,
        "model.num_heads": 4,
        "model.intermediate_size": 1024,
        "model.vocab_size": 8192,
        "model.dropout_rate": 0.0,
        "model.attention_dropout_rate": 0.0,
        "model.norm_place": "pre",
        "model.positions": "rotary",
        "model.initializer_range": 0.04,
    },
}
_SIZES["tiny"] = _SIZES["mini"] | {
    "model.num_layers": 2,
    "model.hidden_size": 128,
    "model.num_heads": 2,
    "model.intermediate_size": 512,
}


def check_scale(scale: str) -> None:
    """Raises ValueError if there is no such scale."""
    if scale not in SCALES:
        raise ValueError(f"Unknown scale {scale!r}. Available: {', '.join(SCALES)}.")


def check_corpus(corpus: str) -> None:
    """Raises ValueError if there is no text to pre-train on."""
    if not corpus:
        raise ValueError(
            "The text to pre-train on is missing: --set corpus=SOURCE, such as text:FILE."
        )


def pretraining_run(
    name: str,
    system: str,
    scale: str,
    corpus: str,
    settings: str,
    overrides: dict[str, Any] | None = None,
    vocabulary_of: str = "",
) -> Run:
    """Returns the pre-training of a system.

    Args:
      name: of the run.
      system: row of SYSTEMS.
      scale: one of SCALES.
      corpus: value of config.data.source.
      settings: further overrides, as `tasks.parse_overrides` reads them, with names of runs.
      overrides: overrides of this run, before those of `settings`.
      vocabulary_of: an earlier run, whose vocabulary a system may take.

    Raises:
      ValueError: there is no such scale, or no corpus.
    """
    check_scale(scale)
    check_corpus(corpus)
    row = SYSTEMS[system]
    sizes = _SIZES if row.sizes is None else row.sizes
    values = _TRAINING[scale] | sizes.get(scale, {}) | row.pretraining
    if scale != "paper" and row.takes_vocabulary and vocabulary_of:
        values["data.vocab"] = f"{{data:{vocabulary_of}}}/vocab.txt"
    values |= {"data.source": corpus} | (overrides or {}) | parse_overrides(settings, name)
    config = row.small_config if row.small_config and scale != "paper" else row.config
    return Run(name, config, values, system=name, task="pretraining")
