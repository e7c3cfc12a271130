"""Folders of runs that no training has made: any parameters, any vocabulary, any task."""

import importlib
import pathlib
import sys
from collections.abc import Callable

import numpy as np
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY))  # for configs
SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# 57 entries.
VOCABULARY = "\n".join(
    [*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *LETTERS, *(f"##{c}" for c in LETTERS)]
)


@pytest.fixture
def random_params() -> Callable[..., dict]:
    """Parameters by path: far from their start, every bias and every scale is random too."""
    import jax

    from bert_jax.formats.tables import flatten
    from bert_jax.tasks import Pretraining
    from bert_jax.training.experiment import make_model_config
    from bert_jax.training.state import init_params

    def make(config, **heads: tuple[int, ...]) -> dict:
        """`heads` are shapes of further parameters, "/" written as "__"."""
        task = Pretraining(make_model_config(config), None, 8, max_predictions_per_seq=1)
        shapes = flatten(jax.eval_shape(lambda: init_params(task, jax.random.key(0))))
        shapes = {name: leaf.shape for name, leaf in shapes.items()}
        if heads:
            shapes = {name: shape for name, shape in shapes.items() if name.startswith("bert/")}
            shapes |= {name.replace("__", "/"): shape for name, shape in heads.items()}
        rng = np.random.default_rng(0)
        return {
            name: (name.endswith("scale") + 0.1 * rng.standard_normal(shape)).astype(np.float32)
            for name, shape in shapes.items()
        }

    return make


@pytest.fixture
def make_workdir(tmp_path, random_params) -> Callable[..., pathlib.Path]:
    """Returns a function (**changes of the configuration, dots as __) -> folder of a run."""
    from bert_jax.config import settings as config_lib
    from bert_jax.formats.tables import unflatten
    from bert_jax.training.checkpoints import Checkpoints
    from bert_jax.training.state import TrainState

    def make(vocabulary: str | bytes = VOCABULARY, heads=None, params=None, **changes):
        workdir = tmp_path / "run"
        workdir.mkdir()
        task = changes.get("task", "pretraining")
        name = task if task in config_lib.TASKS[1:] else "base"
        config = importlib.import_module(f"configs.{name}").get_config()
        config.model.update(SIZES)
        config.phases = ((config.model.max_position_embeddings, 1.0),)
        config.update_from_flattened_dict({k.replace("__", "."): v for k, v in changes.items()})
        config_lib.save(config, str(workdir))
        if isinstance(vocabulary, str):
            (workdir / "vocab.txt").write_text(vocabulary, encoding="utf-8")
        else:
            (workdir / "vocab.model").write_bytes(vocabulary)
        if params is None:
            params = random_params(config, **(heads or {}))
        checkpoints = Checkpoints(str(workdir))
        zero = np.int32(0)
        state = TrainState(np.int32(7), unflatten(params), {"count": zero}, zero)  # type: ignore
        checkpoints.save(state, meta={}, metrics={})
        checkpoints.close()
        return workdir

    return make
