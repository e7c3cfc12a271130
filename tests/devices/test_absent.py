"""Commands on a machine without accelerators, whose environment has libraries for them."""

import glob
import importlib.util
import os
import subprocess
import sys

import pytest

PROGRAM = """
import os
from bert_jax.tools.cli import command_line

def main(words):
    import jax
    print(jax.devices()[0].platform, os.environ["TPU_WORKER_HOSTNAMES"])

command_line.run(main)
"""
NODES = ("/dev/accel*", "/dev/vfio/[0-9]*", "/dev/nvidia*", "/dev/dxg")


@pytest.mark.skipif(any(map(glob.glob, NODES)), reason="this machine has an accelerator")
@pytest.mark.parametrize("plugin, is_shown", [("xla_cuda13", False), ("another", True)])
def test_errors_about_hardware_that_the_machine_lacks_are_not_shown(plugin, is_shown, tmp_path):
    """Others are. The libtpu that is installed is used, if any."""
    folder = tmp_path / "jax_plugins" / plugin
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def initialize():\n    raise RuntimeError('no cuDNN')\n")
    if not importlib.util.find_spec("libtpu"):
        (tmp_path / "libtpu.py").write_text("def get_library_path():\n    return '/no/libtpu.so'\n")
    environment = {name: text for name, text in os.environ.items() if "JAX_PLATFORMS" not in name}
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "cpu localhost\n"), done.stderr
    assert ("no cuDNN" in done.stderr) == is_shown == bool(done.stderr)
