"""BERT-Large with LAMB and batches of 65,536 and 32,768 sequences, for pods.

    python -m bert_jax.main --config=configs/large_batch.py --workdir=DIR \\
        --config.data.source=text:PATH --config.microbatch_size=4096
    bert_jax doctor --config=configs/large_batch.py --topology=v5p:4x4x4

7,038 steps at 128 tokens and 1,563 at 512, each with its own warm-up: the settings of
`run_pretraining.sh` in NVIDIA/DeepLearningExamples (PyTorch/LanguageModeling/BERT), which follows
You et al. 2020. `microbatch_size` divides a batch into parts that fit. Compiled, not run.
"""

from ml_collections import ConfigDict

from configs import bert

_UPDATES = (7038, 1563)


def get_config() -> ConfigDict:
    config = bert.get_config("large")
    config.steps = sum(_UPDATES)
    first = _UPDATES[0] / config.steps
    config.phases = ((128, first, 65_536, 20), (512, 1 - first, 32_768, 80))
    config.dtype = "bfloat16"

    config.optimizer.name = "lamb"
    config.optimizer.schedule = "root"
    config.optimizer.phase_schedules = ((6e-3, 0.2843), (4e-3, 0.128))

    config.log.every = "20"
    config.eval.every = "500"
    config.checkpoint.every = "200"
    return config
