"""TensorFlow checkpoints: a real one, and those of a writer that shares no code with the reader."""

import ml_dtypes
import numpy as np
import pytest

from bert_jax.formats.tensorflow_bundle import Bundle, find_prefixes
from tests.tools.convert.bundle_writer import write_bundle


def some_arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((300, 7))
    return {
        "bert/embeddings/word_embeddings": values.astype(np.float32),
        "bert/embeddings/word_embeddings/adam_m": values[:3].astype(np.float16),
        "bert/encoder/layer_0/output/dense/kernel": values.astype(ml_dtypes.bfloat16),
        "bert/encoder/layer_10/output/dense/kernel": values[:2],
        "empty": np.zeros((0, 4), np.float32),
        "global_step": np.int64(1 << 40),
        "small": np.array([-1, 2], np.int32),
        **{f"many/{i}": rng.standard_normal(i).astype(np.float32) for i in range(60)},
    }


@pytest.mark.parametrize("shards, a_block", [(1, 7), (3, 1), (2, 1000)])
def test_every_tensor_comes_back_bit_for_bit(tmp_path, shards, a_block):
    arrays = some_arrays()
    write_bundle(tmp_path / "model.ckpt", arrays, shards, a_block)
    bundle = Bundle(str(tmp_path / "model.ckpt"))
    assert list(bundle.entries) == sorted(arrays)
    for name, array in arrays.items():
        got = bundle[name]
        assert got.dtype == array.dtype and got.shape == array.shape
        assert got.tobytes() == array.tobytes()
    assert find_prefixes(str(tmp_path)) == [str(tmp_path / "model.ckpt")]


def test_a_real_checkpoint_agrees_with_its_checksums(shared_data):
    bundle = Bundle(str(shared_data / "checkpoints/keras_bert_tiny_tf/bert_model.ckpt"))
    assert len(bundle.entries) == 139
    arrays = dict(bundle)
    assert arrays["global_step"] == 20
    assert arrays["bert/embeddings/word_embeddings"].shape == (15, 4)
    assert sum(name.endswith(("/adam_m", "/adam_v")) for name in arrays) == 92


DATA = "m.data-00000-of-00001"


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


# File, what happens to it, and the message.
BROKEN = [
    ("m.index", lambda path: path.write_bytes(path.read_bytes()[:-9]), "its footer is not that"),
    ("m.index", lambda path: path.unlink(), "m.index is missing"),
    (DATA, lambda path: flip(path, 5), "00001 is corrupt: the checksum of a differs"),
    (
        DATA,
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        "truncated: it ends within the tensor a",
    ),
    (DATA, lambda path: path.unlink(), "m.data-00000-of-00001 is missing: the index names"),
]


@pytest.mark.parametrize("file, spoil, message", BROKEN)
def test_corrupt_and_missing_files_are_named(tmp_path, file, spoil, message):
    write_bundle(tmp_path / "m", {"a": np.ones(9, np.float32)})
    spoil(tmp_path / file)
    with pytest.raises(ValueError, match=message):
        Bundle(str(tmp_path / "m"))["a"]
    (tmp_path / "m.index").unlink(missing_ok=True)
    (tmp_path / "m").write_bytes(b"anything")
    with pytest.raises(ValueError, match="has version 1 of TensorFlow's checkpoint format"):
        Bundle(str(tmp_path / "m"))


@pytest.mark.parametrize("position", range(0, 200, 3))
def test_any_corrupt_byte_of_an_index_is_reported(tmp_path, position):
    write_bundle(tmp_path / "m", {"a": np.ones(9, np.float32), "b": np.ones(3, np.float32)})
    path = tmp_path / "m.index"
    flip(path, position % len(path.read_bytes()))
    try:
        bundle = Bundle(str(tmp_path / "m"))
    except ValueError as error:
        assert "m.index cannot be read" in str(error)
    else:  # a byte of the footer's padding, which is not used
        assert [bundle[name].sum() for name in bundle] == [9, 3]


@pytest.mark.parametrize(
    "oddity, message",
    [
        ({"compression": 1}, "it is compressed"),
        ({"endianness": 1}, "its numbers are big-endian"),
        ({"slices": True}, "a variable is stored in slices"),
        ({"dtype": 7}, "a tensor has the dtype number 7"),
    ],
)
def test_unsupported_features_are_reported(tmp_path, oddity, message):
    write_bundle(tmp_path / "m", {"a": np.ones(9, np.float32)}, **oddity)
    with pytest.raises(ValueError, match=message):
        Bundle(str(tmp_path / "m"))
