"""The installed wheel: in an empty folder, without the checkout, a model is made and used."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
WORDS = "a list of the value is set each item returns holds".split()
TINY_RUN = (
    "--config.model.vocab_size=64 --config.model.hidden_size=16 --config.model.num_layers=1"
    " --config.model.num_heads=2 --config.model.intermediate_size=32"
    " --config.phases=((32,1.0),) --config.global_batch_size=8 --config.prng_impl=threefry2x32"
    " --config.data.num_processes=1 --config.data.dupe_factor=1 --config.data.validation_share=0.3"
    " --config.steps=3"
).split()


ONE_DEVICE = {"JAX_NUM_CPU_DEVICES": "1"}  # compiles fastest


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> pathlib.Path:
    """A folder with the installed wheel. It is built from a copy, so that the checkout stays."""
    if not all(map(importlib.util.find_spec, ("pip", "setuptools"))):
        pytest.skip("needs pip and setuptools to build the wheel")
    copy = tmp_path_factory.mktemp("copy")
    for name in ("bert_jax", "configs"):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("__pyc*"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, copy)
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", f"--wheel-dir={copy}"]
    subprocess.run([*PIP, *build, str(copy)], check=True, timeout=120)
    (wheel,) = copy.glob("*.whl")
    target = tmp_path_factory.mktemp("installed")
    install = ["install", "--quiet", "--no-deps", "--no-index", f"--target={target}"]
    subprocess.run([*PIP, *install, str(wheel)], check=True, timeout=120)
    return target


@pytest.fixture(scope="module")
def run(installed, tmp_path_factory):
    """Returns a function that runs a command with the wheel in an empty folder, and its output."""
    folder = tmp_path_factory.mktemp("empty")
    # The dependencies without the editable installation of the checkout: site-packages as a folder
    # of the path, where .pth files have no effect.
    path = [installed, *dict.fromkeys(map(sysconfig.get_path, ("purelib", "platlib")))]

    def run(*words: str, fails: bool = False) -> str:
        done = subprocess.run(
            [sys.executable, "-S", "-W", "ignore", *words],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))} | ONE_DEVICE,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    run.folder = folder
    return run


def command(run, *words: str, **options) -> str:
    return run("-m", "bert_jax", *words, **options)


def test_the_package_is_the_wheels(run, installed):
    code = "import bert_jax, sys; print(bert_jax.__file__); assert 'configs' not in sys.modules"
    assert run("-c", code).strip() == str(installed / "bert_jax" / "__init__.py")
    assert "train  " in command(run, "--help")
    script = next((installed / "bin").glob("bert_jax*"))
    assert "train  " in run(str(script), "--help")


def test_a_missing_configuration_names_both_places(run, installed):
    message = command(run, "train", "--config=configs/mine.py", "--workdir=x", fails=True)
    assert message == (
        "error: --config=configs/mine.py: there is no such file, neither in the current directory"
        f" nor in the installed package ({installed / 'bert_jax' / 'configs'}).\n"
    )


def test_the_sweeps_are_part_of_the_package(run):
    words = ["--sweep=configs/sweeps/table6.py:tiny", "--set", "corpus=text:x", "--set", "data=D"]
    assert command(run, "sweep", *words, "--dry_run").endswith("13 jobs in 3 stages\n")


def test_a_configuration_of_ones_own_builds_on_the_packages(run):
    (run.folder / "configs").mkdir()
    (run.folder / "configs" / "shared.py").write_text("STEPS = 7\n")
    (run.folder / "configs" / "mine.py").write_text(
        "from bert_jax.tasks import default_config\n"
        "from configs import base, shared\n\n\n"
        "def get_config():\n"
        "    config = base.get_config()\n"
        "    assert config == default_config('pretraining').to_config_dict()\n"
        "    config.steps = shared.STEPS\n"
        "    config.data.source = 'nowhere'\n"
        "    return config\n"
    )
    try:
        words = ("prepare", "--config=configs/mine.py", "--data_dir=data")
        assert "Unknown data.source='nowhere'" in command(run, *words, fails=True)
    finally:
        shutil.rmtree(run.folder / "configs")


def test_a_model_is_pretrained_and_fills_masks(run):
    """What the other commands need of the wheel, its data files, is in the report of a run too."""
    lines = [" ".join(WORDS[(i * k) % len(WORDS)] for k in range(1, 9)) for i in range(1, 240)]
    documents = ["\n".join(lines[i : i + 6]) + f"\n{i} end" for i in range(0, 240, 6)]
    (run.folder / "text.txt").write_text("\n\n".join(documents))
    words = [*TINY_RUN, "--config.data.source=text:text.txt", "--workdir=run"]
    shown = command(run, "train", *words, "--config=configs/tiny.py")
    assert "step 3/3" in shown and "report     run/report.html" in shown
    shown = command(run, "fill_mask", "--model=run", "--top_k=2", "a [MASK] of the list")
    assert shown.count("%") == 2
