"""The configuration of a fine-tuning run."""

import dataclasses
from typing import Any, ClassVar

from bert_jax.config.data import LabelledConfig
from bert_jax.config.group import setting
from bert_jax.config.groups import (
    CheckpointConfig,
    EvalConfig,
    LogConfig,
    OptimizerConfig,
)
from bert_jax.config.run import RunConfig
from bert_jax.files.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningConfig(RunConfig):
    """Training on labelled examples (Devlin et al. 2019, section 4 and appendix A.3)."""

    steps: int = 1
    epochs: float = 3.0
    global_batch_size: int = 32
    # Number of runs, with seeds `seed`, `seed` + 1, ..., in one folder of the workdir each.
    seeds: int = setting(1, free=True)
    # Maximum sequence length in tokens, special tokens included. Longer texts are truncated, or
    # take several rows (task.long_texts); longer sentences of taggers and passages of questions
    # always take several rows.
    max_length: int = setting(128)
    # Number of layers, counted from the last one, that start from random parameters together with
    # the pooler, instead of from `init_from`.
    reinit_layers: int = setting(0, minimum=0)
    # Published value of `metrics[0]`, shown in reports; 0: none.
    published_score: float = setting(0.0, minimum=0, free=True)
    # Source of `published_score`: model, dataset and publication.
    published_in: str = setting("", free=True)
    data: LabelledConfig = LabelledConfig()
    # Scores; the first is compared with the baseline and summarized over seeds.
    metrics: tuple[str, ...] = ("accuracy",)
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-5, warmup="10%")
    log: LogConfig = LogConfig(every="10%")
    eval: EvalConfig = EvalConfig(every="1 epoch")
    checkpoint: CheckpointConfig = CheckpointConfig(
        every="1 epoch", keep=1, best_metric="", use="best"
    )

    has_corpus: ClassVar[bool] = False

    @property
    def phase_entries(self) -> tuple[tuple[Any, ...], ...]:
        return ((self.max_length, 1.0),)

    @property
    def known_metrics(self) -> tuple[str, ...]:
        return self.metrics

    def check_run(self) -> None:
        if not self.metrics:
            raise UserError("metrics is empty: name a score, such as accuracy.")
        super().check_run()
        if self.reinit_layers > self.model.num_layers:
            raise UserError(
                f"reinit_layers={self.reinit_layers} is above"
                f" config.model.num_layers={self.model.num_layers}."
            )

    def reinitialized_pattern(self) -> str:
        if not self.reinit_layers:
            return ""
        last = self.model.num_layers
        layers = "|".join(map(str, range(last - self.reinit_layers, last)))
        return rf"^{self.model.name}/(pooler|encoder/layer_({layers}))/"
