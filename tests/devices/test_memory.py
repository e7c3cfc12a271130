"""Free memory, compared with psutil and with a made-up container."""

import psutil
import pytest

from bert_jax.devices import memory


def test_memory_is_that_of_psutil_but_for_the_container():
    free = memory.available_memory()
    assert 0 < free < 1.1 * psutil.virtual_memory().available
    assert memory.used_memory() == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)


def test_the_limit_of_a_container_counts(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("2000000\n")
    (tmp_path / "memory.current").write_text("500000\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.available_memory() == 1_500_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_memory() > 1_500_000
