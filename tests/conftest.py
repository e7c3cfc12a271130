"""Eight CPU devices before jax starts, and the strictness that every test runs under."""

import ctypes
import gc
import importlib.metadata
import importlib.util
import os
import pathlib
import sys
import tempfile
from typing import Any

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
if str(REPOSITORY) not in sys.path:
    sys.path.append(str(REPOSITORY))  # for configs and tests

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
# Compiling is most of the time of small models. What compares bits, compares like with like.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# With them, a training step of the small model compiles in 60 % of the time. XLA ends a process at
# a flag that it does not know, so only the version that they were tried with gets them.
if importlib.metadata.version("jaxlib").startswith("0.10."):
    _flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ.setdefault("XLA_FLAGS", _flags)
# What one process has compiled, the others load: the workers of a session, which are processes of
# the first, and the commands that tests start.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="bert_jax_tests_", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache.name
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")
# Threads of torch wait for work in loops: beside another worker, a test of seconds took minutes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tracing makes many objects and few cycles: looking for them was a twentieth of the time.
gc.set_threshold(100_000, 50, 100)
# Its conftest.py imports the extra serve.
collect_ignore = [] if importlib.util.find_spec("starlette") else ["tools/serve"]
# Of a process between two files, in bytes.
_MOST_MEMORY = 3 << 29
# Folders whose files share slow imports -> their group, which one worker takes.
_GROUPS = {"parity": "theirs", "convert": "theirs"}
# Folders and files of long tests. The tour is the longest file: as the last one of a worker, it
# would keep the others waiting.
_FIRST = ("test_tour.py", *_GROUPS, "runs", "training")


def pytest_configure() -> None:
    """Computes sentence vectors without rounding, whatever the processor."""
    from bert_jax.devices import processor

    processor.gains_from_bfloat16 = lambda: False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Returns a scheduler that gives a worker a whole group: folders of _GROUPS, or a file."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::")[0]
            return _GROUPS.get(pathlib.PurePosixPath(path).parent.name, path)

    return GroupScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the long groups first: the last one that a worker takes should be short."""

    def place(item: pytest.Item) -> int:
        names = {item.path.name, item.path.parent.name}
        return next((n for n, name in enumerate(_FIRST) if name in names), len(_FIRST))

    items.sort(key=place)


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
    from tests.data.labelled import tiny_tasks

    tiny_tasks.build(folder := tmp_path_factory.mktemp("tfds"))
    return folder


@pytest.fixture(scope="module", autouse=True)
def _programs_of_a_file():
    """Forgets compiled programs after a file if the process is large: other files have their own.

    Those of all files would take 6 GB.
    """
    yield
    if (pages := pathlib.Path("/proc/self/statm")).exists():
        resident = int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if "jax" in sys.modules and resident > _MOST_MEMORY:
            sys.modules["jax"].clear_caches()
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)  # glibc keeps what is free


@pytest.fixture
def make_task():
    """Returns `tiny.make_task`."""
    from tests import tiny

    return tiny.make_task
