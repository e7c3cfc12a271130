"""An optimizer and a schedule of optax: Lion (Chen et al. 2023), and one cycle (Smith 2018)."""

import optax

from bert_jax.optim.optimizers import OPTIMIZERS, decay_mask
from bert_jax.optim.schedules import SCHEDULES


def lion(config):
    """From gradients to directions; the learning rate of the step multiplies them afterwards."""
    return optax.chain(
        optax.scale_by_lion(config.beta1, config.beta2),
        optax.add_decayed_weights(
            config.weight_decay, mask=lambda params: decay_mask(params, config.no_decay)
        ),
    )


def one_cycle(config, num_steps, warmup_steps):
    share = max(1, warmup_steps) / num_steps
    return optax.cosine_onecycle_schedule(num_steps, config.learning_rate, pct_start=share)


OPTIMIZERS["lion"] = lion
SCHEDULES["one_cycle"] = one_cycle
