"""safetensors files as the package of that name writes them."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest

from bert_jax.formats.safetensors_file import read_safetensors

safetensors_numpy = pytest.importorskip("safetensors.numpy")


def test_every_dtype_is_read_bit_for_bit(tmp_path):
    values = np.random.default_rng(0).standard_normal((5, 3)) * 100
    types = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?")
    arrays = {name: values.astype(name) for name in types} | {"none": np.zeros((0, 2), "f4")}
    path = str(tmp_path / "m.safetensors")
    safetensors_numpy.save_file(arrays, path, {"format": "pt"})
    got = read_safetensors(path)
    assert got.keys() == arrays.keys()
    for name, array in arrays.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape
        assert got[name].tobytes() == array.tobytes()


def test_bfloat16_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    tensor = torch.randn(4, 3).to(torch.bfloat16)
    save_file({"a": tensor}, str(tmp_path / "m.safetensors"))
    got = read_safetensors(str(tmp_path / "m.safetensors"))["a"]
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got.astype(np.float32), tensor.float().numpy())


@pytest.mark.parametrize("size", [0, 5, 8, 40, -1, -8])
def test_a_truncated_file_is_reported(tmp_path, size):
    path = tmp_path / "m.safetensors"
    safetensors_numpy.save_file({"a": np.ones((4, 4), np.float32)}, str(path))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"m\.safetensors .*truncated"):
        read_safetensors(str(path))


@pytest.mark.parametrize(
    "entry, message",
    [
        (
            {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]},
            "the unsupported dtype F8_E4M3",
        ),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "cannot reshape"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}, "end at byte"),
        ({"dtype": "F32"}, "data_offsets"),
        (3, "cannot be read"),
    ],
)
def test_invalid_headers_are_reported(tmp_path, entry, message):
    header = json.dumps({"a": entry}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    with pytest.raises(ValueError, match=message):
        read_safetensors(str(path))
