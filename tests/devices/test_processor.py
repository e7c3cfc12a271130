"""Which processors round products to bfloat16, and how they are described, by what Linux says."""

import importlib.util

import pytest

from bert_jax.devices import processor


@pytest.mark.parametrize(
    ("vendor", "features", "gains"),
    [
        ("GenuineIntel", "avx512f avx512_bf16 amx_bf16", True),
        ("GenuineIntel", "avx512f avx512_bf16", False),  # measured: 1.6 times as long
        ("AuthenticAMD", "avx512f avx512_bf16", True),
        ("AuthenticAMD", "avx2", False),
        ("", "asimd bf16", False),  # ARM: not measured
    ],
)
def test_products_are_rounded_where_that_was_measured_to_be_faster(
    vendor, features, gains, monkeypatch
):
    # A copy of the module, since the tests' configuration replaces the function.
    spec = importlib.util.spec_from_file_location("fresh_processor", processor.__file__)
    assert spec and spec.loader
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    fields = {"vendor_id": vendor, "flags": features}
    monkeypatch.setattr(fresh, "_cpuinfo", lambda name, *_: fields[name])
    assert fresh.gains_from_bfloat16() is gains


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("sse2 avx2 avx512f amx_tile", "EPYC with AMX, 3 cores"),
        ("sse2 avx2 avx512f", "EPYC with AVX-512, 3 cores"),
        ("sse2 avx2", "EPYC with AVX2, 3 cores"),
        ("sse2", "EPYC, 3 cores"),
    ],
)
def test_machines_of_one_name_are_told_apart_by_their_vector_units(flags, expected, monkeypatch):
    fields = {"model name": "EPYC", "flags": flags}
    monkeypatch.setattr(processor, "_cpuinfo", lambda name, *_: fields[name])
    monkeypatch.setattr(processor, "num_cores", lambda: 3)
    assert processor.describe() == expected
