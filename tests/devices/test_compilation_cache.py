"""Compiled programs are kept in a folder, by default the user's, and loaded from there."""

import os
import pathlib
import subprocess
import sys

import jax
import pytest

from bert_jax.devices import compilation_cache

PROGRAM = """
import sys
import jax, jax.numpy as jnp
from bert_jax.devices import compilation_cache
compilation_cache._MIN_SECONDS = 0.0
compilation_cache.use(sys.argv[1])
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((3, 3)))
print(hits.count("/jax/compilation_cache/cache_hits"), compilation_cache.describe())
"""


def start(folder: str, **environment: str) -> str:
    names = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def test_a_second_process_loads_what_the_first_compiled(tmp_path):
    first, second = (start("", XDG_CACHE_HOME=str(tmp_path)) for _ in range(2))
    (folder,) = (tmp_path / "bert_jax" / "compiled").iterdir()
    assert len(list(folder.glob("*-cache"))) >= 1
    assert first.startswith("0 ") and f"kept in {folder}, at most 2.0 GB" in first
    assert int(second.split()[0]) >= 1


def test_a_folder_of_jax_is_left_as_it_is(tmp_path):
    printed = start("", JAX_COMPILATION_CACHE_DIR=str(tmp_path), XDG_CACHE_HOME="/nowhere")
    assert f"kept in {tmp_path}, without a limit" in printed


@pytest.fixture
def jax_settings():
    """Restores what `use` changes."""
    names = ("jax_enable_compilation_cache", "jax_compilation_cache_dir")
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_nothing_is_kept_if_it_is_off(jax_settings):
    assert compilation_cache.describe()  # of tests/conftest.py
    compilation_cache.use(compilation_cache.OFF)
    assert compilation_cache.describe() == ""


def test_a_folder_that_cannot_be_written_is_named(tmp_path, jax_settings, monkeypatch):
    (file := tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=f"--compilation_cache={file}/x cannot be written"):
        compilation_cache.use(f"{file}/x")
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    compilation_cache.use()  # the default one is done without
    assert compilation_cache.describe() == ""


def test_processors_with_other_instructions_have_another_folder(monkeypatch):
    before = compilation_cache.default_folder()
    monkeypatch.setattr(pathlib.Path, "read_text", lambda self: "flags : fpu avx512f\n")
    assert compilation_cache.default_folder() != before
