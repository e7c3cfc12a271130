"""safetensors files: dtypes, permissions, and what is refused."""

import json
import resource
import struct

import ml_dtypes
import numpy as np
import pytest

from bert_jax.formats.safetensors_file import read_safetensors, write_safetensors


def test_arrays_of_every_dtype_and_of_any_strides_are_read_bit_for_bit(tmp_path):
    values = np.random.default_rng(0).standard_normal((5, 3)) * 100
    types = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?", ml_dtypes.bfloat16)
    arrays = {np.dtype(kind).name: values.astype(kind).T for kind in types}
    arrays["none"] = np.zeros((0, 2), "f4")
    path = tmp_path / "m.safetensors"
    write_safetensors(path, arrays)
    got = read_safetensors(str(path))
    assert got.keys() == arrays.keys()
    for name, array in arrays.items():
        assert got[name].dtype == array.dtype and got[name].shape == array.shape
        assert got[name].tobytes() == array.tobytes()
    (other := tmp_path / "other").touch()
    assert path.stat().st_mode == other.stat().st_mode


@pytest.mark.parametrize("size", [0, 5, 8, 40, -1, -8])
def test_a_truncated_file_is_reported(tmp_path, size):
    path = tmp_path / "m.safetensors"
    write_safetensors(path, {"a": np.ones((4, 4), np.float32)})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"m\.safetensors .*truncated"):
        read_safetensors(str(path))


def test_a_dtype_that_numpy_lacks_is_reported(tmp_path):
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    with pytest.raises(ValueError, match="the unsupported dtype float8_e4m3"):
        read_safetensors(str(path))


def test_a_failed_write_is_an_error_of_the_system(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_safetensors(tmp_path / "m.safetensors", {"a": np.ones(1 << 12, np.float32)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
