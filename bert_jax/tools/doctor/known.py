"""Learning rates, batches and warm-ups that are known to work, and where they come from.

A row of PRETRAINING or FINETUNING is a published recipe, or a configuration of this package. What
is known for a run are the rows with its kind of optimizer, place of the norms and size: their
lowest and highest learning rate. RoBERTa's rates for pre-training are also those of the model cards
of roberta-base and roberta-large, those for fine-tuning (1e-5, 2e-5) also of fairseq's
examples/roberta/README.finetune_glue.md; ELECTRA's also that of google-research/electra. LAMB in
NVIDIA/DeepLearningExamples (PyTorch/LanguageModeling/BERT) has 6e-3 at batch 65,536 and 4e-3 at
32,768, within a factor of 1.25 of `lamb_rate`. Adafactor's 1e-2 is also where T5's schedule begins
(Raffel et al. 2020, 3.1.2).
"""

import dataclasses
from collections.abc import Sequence

# Optimizers whose updates have the size of the learning rate. Muon's is made equal to Adam's
# (optim/optimizers.py).
FAMILIES = {
    "bert_adam": "adam",
    "adamw": "adam",
    "gpt_adam": "adam",
    "muon": "adam",
    "lamb": "lamb",
    "adagrad": "adagrad",
    "adafactor": "adafactor",
}
# Hidden sizes below it are those of small models: Mini, Small of ELECTRA, MiniLM.
SMALL = 512


@dataclasses.dataclass(frozen=True)
class Known:
    """A recipe that is known to work.

    Attributes:
      name: who published it, and where.
      family: of FAMILIES.
      sizes: `small` or `large` models, or both, by their hidden size; SMALL divides them.
      lowest, highest: learning rates.
      places: of layer norms, config.model.norm_place.
    """

    name: str
    family: str
    sizes: tuple[str, ...]
    lowest: float
    highest: float
    places: tuple[str, ...] = ("post", "pre")


_BOTH = ("small", "large")
PRETRAINING = (
    Known("BERT, batch 256 (Devlin et al. 2019, A.2)", "adam", ("large",), 1e-4, 1e-4),
    Known("GPT, batch 64 (Radford et al. 2018, 4.1)", "adam", ("large",), 2.5e-4, 2.5e-4),
    Known("RoBERTa, batch 8192 (Liu et al. 2019, Table 9)", "adam", ("large",), 4e-4, 6e-4),
    Known("configs/fast.py", "adam", ("large",), 1e-3, 1e-3, ("pre",)),
    Known("BERT (Devlin et al. 2019, A.2)", "adam", ("small",), 1e-4, 1e-4),
    Known("ELECTRA-Small, batch 128 (Clark et al. 2020, Table 6)", "adam", ("small",), 5e-4, 5e-4),
    # 1e-3 is the most: configs/tiny.py.
    Known("configs/tiny.py", "adam", ("small",), 5e-4, 1e-3),
    Known("configs/fast.py:tiny", "adam", ("small",), 3e-3, 3e-3, ("pre",)),
    # The published one at batch 512 and at batch 32,768; `lamb_rate` has the rule between them.
    Known("LAMB, batch 512 to 32768 (You et al. 2020, Table 4)", "lamb", _BOTH, 6.25e-4, 5e-3),
    Known("bilm-tf's train_elmo.py", "adagrad", _BOTH, 0.2, 0.2),
    Known("Adafactor (Shazeer & Stern 2018, section 9)", "adafactor", _BOTH, 1e-2, 1e-2),
)
# Of a model that has been pre-trained: README.md of google-research/bert.
CONTINUED = (
    Known("google-research/bert's README.md, to continue", "adam", _BOTH, 2e-5, 2e-5),
    Known("BERT (Devlin et al. 2019, A.2)", "adam", _BOTH, 1e-4, 1e-4),
)
FINETUNING = (
    Known("BERT (Devlin et al. 2019, A.3)", "adam", ("large",), 2e-5, 5e-5),
    Known("RoBERTa (Liu et al. 2019, Table 10)", "adam", ("large",), 1e-5, 3e-5),
    Known("GPT (openai/finetune-transformer-lm)", "adam", ("large",), 6.25e-5, 6.25e-5),
    Known("configs/ner.py", "adam", _BOTH, 5e-5, 1e-4),
    Known("T5 (Raffel et al. 2020, section 3.1.2)", "adafactor", _BOTH, 1e-3, 1e-3),
    Known("small BERTs (google-research/bert's README.md)", "adam", ("small",), 3e-5, 3e-4),
)
# Of a head on an encoder that is not trained.
FROZEN = (Known("configs/ner.py, ELMo (config/model_choices.py)", "adam", _BOTH, 1e-3, 1e-3),)
# A model that starts from random parameters on labelled files.
FROM_SCRATCH = PRETRAINING

# (fewest, most, where they come from) sequences of a step.
BATCHES = {
    "pretraining": (32, 8192, "32 (configs/tiny.py) to 8192 (RoBERTa)"),
    "finetuning": (8, 128, "16 and 32 (BERT, A.3), 8 to 128 (google-research/bert's README.md)"),
}
# (least, most) part of the run.
WARMUPS = {"pretraining": (0.005, 0.2), "finetuning": (0.002, 0.2)}
WARMUP_SOURCES = {
    "pretraining": "1 % (BERT), 5 % (RoBERTa), up to 20 % (LAMB)",
    "finetuning": "0.2 % (GPT), 6 % (RoBERTa), 10 % (BERT)",
}
# Epochs of labelled files: BERT 2 to 4 (A.3); of small ones up to 20 (Mosbach et al. 2021).
EPOCHS = (2.0, 20.0)
# Labelled examples below which 3 epochs of BERT-Adam often fail (Mosbach et al. 2021, section 5).
FEW_EXAMPLES = 10_000


@dataclasses.dataclass(frozen=True)
class Range:
    """Learning rates that are known to work.

    Attributes:
      lowest, highest: rates.
      sources: who has them.
    """

    lowest: float
    highest: float
    sources: str


def rates(
    rows: Sequence[Known], optimizer: str, hidden_size: int, norm_place: str, batch_size: int
) -> Range | None:
    """Returns the learning rates that are known to work; None: none are.

    Args:
      rows: one of the tables of this file.
      optimizer: config.optimizer.name.
      hidden_size: of the encoder.
      norm_place: its config.model.norm_place.
      batch_size: sequences of a step; LAMB's rate depends on it.
    """
    size = "small" if hidden_size < SMALL else "large"
    found = [
        row
        for row in rows
        if row.family == FAMILIES.get(optimizer) and size in row.sizes and norm_place in row.places
    ]
    if not found:
        return None
    sources = "; ".join(f"{row.name}: {_span(row.lowest, row.highest)}" for row in found)
    if found[0].family == "lamb":
        rate = lamb_rate(batch_size)
        return Range(rate / 2, rate * 2, f"{sources}; {rate:.2g} at batch {batch_size}")
    return Range(min(r.lowest for r in found), max(r.highest for r in found), sources)


def lamb_rate(batch_size: int) -> float:
    """Returns LAMB's rate: 5e-3 at batch 32,768, with the square root of the batch below."""
    return 5e-3 * (batch_size / 32_768) ** 0.5


def _span(lowest: float, highest: float) -> str:
    return f"{lowest:g}" if lowest == highest else f"{lowest:g} to {highest:g}"
