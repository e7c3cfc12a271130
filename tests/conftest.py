"""Eight CPU devices before jax starts, and the strictness that every test runs under."""

import os
import pathlib

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
# Compiling is most of the time of small models. What compares bits, compares like with like.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """The folder of real data beside the checkout; the test is skipped where it is missing."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs ../shared/data, which is not on this machine")
    return folder


@pytest.fixture(scope="session")
def tiny_tasks(tmp_path_factory) -> pathlib.Path:
    """A data directory of tensorflow-datasets with the dataset `tiny_tasks`."""
    from tests.examples import tiny_tasks

    tiny_tasks.build(folder := tmp_path_factory.mktemp("tfds"))
    return folder


@pytest.fixture
def make_task():
    """Returns a function that makes a small pre-training task; its arguments change the model."""
    from bert_jax.models.config import BertConfig
    from bert_jax.tasks import Pretraining
    from bert_jax.tasks.masking import MaskingRule

    def make(masking="subword", sequence_length=16, **changes) -> Pretraining:
        values = dict(
            vocab_size=64,
            pad_vocab_to_multiple_of=1,
            hidden_size=16,
            num_layers=2,
            num_heads=2,
            intermediate_size=32,
            max_position_embeddings=sequence_length,
            type_vocab_size=2,
            dropout_rate=0.1,
            attention_dropout_rate=0.1,
            initializer_range=0.02,
            layer_norm_epsilon=1e-12,
            activation="gelu_tanh",
            remat=False,
            prng_impl="threefry2x32",  # the fastest to compile
        )
        model = BertConfig(**values | changes)
        rule = MaskingRule(
            masked_lm_prob=0.15,
            max_predictions=3,
            masking=masking,
            vocab_size=model.vocab_size,
            mask_id=4,
            never_masked=(0, 2, 3),
            is_continuation=tuple(i % 3 == 0 and i > 4 for i in range(model.vocab_size)),
        )
        return Pretraining(model, rule, sequence_length, max_predictions_per_seq=3)

    return make


@pytest.fixture
def make_batch():
    """Returns a function that makes a batch of random rows of different lengths."""
    import numpy as np

    def make(batch_size: int, sequence_length: int = 16, seed: int = 0) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        lengths = rng.integers(8, sequence_length + 1, (batch_size, 1))
        place = np.arange(sequence_length)
        is_token = place < lengths
        first = lengths // 2
        ids = rng.integers(5, 64, (batch_size, sequence_length))
        ids = np.where(place == 0, 2, np.where((place == first) | (place == lengths - 1), 3, ids))
        return {
            "input_ids": np.where(is_token, ids, 0).astype(np.int32),
            "token_type_ids": (is_token & (place > first)).astype(np.int32),
            "position_ids": np.where(is_token, place, 0).astype(np.int32),
            "example_ids": is_token.astype(np.int32),
            "cls_positions": np.zeros((batch_size, 1), np.int32),
            "next_sentence_labels": rng.integers(0, 2, (batch_size, 1)).astype(np.int32),
            "next_sentence_weights": np.ones((batch_size, 1), np.float32),
        }

    return make
