"""The settings of the optimizer."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Settings of the optimizer; bert_jax/config/defaults.py describes the fields.

    `encoder` is the top-level name of the encoder's parameters; `phase_schedules` has the share of
    the updates, the peak and the share of the warm-up of each phase, or nothing.
    """

    name: str
    learning_rate: float
    schedule: str
    weight_decay: float
    beta1: float
    beta2: float
    epsilon: float
    clip_norm: float
    no_decay: tuple[str, ...]
    encoder: str
    layer_decay: float = 1.0
    frozen_layers: int = 0
    initial_accumulator: float = 1.0
    decay_fraction: float = 0.5
    phase_schedules: tuple[tuple[float, float, float], ...] = ()
