"""Runs whose text, data and workdir are in a bucket: killed, on other machines, on several."""

import dataclasses
import json
import pathlib

import pytest

from bert_jax.data.corpus.prepare import prepare
from bert_jax.files import buckets
from tests import object_stores
from tests.object_stores import another_machine
from tests.resuming import assert_same_arrays
from tests.runs.conftest import ONE_PHASE, Run, kill_when

SHORT = ONE_PHASE | {"steps": 6, "eval__every": "0", "checkpoint__every": "2"}
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module", params=["s3"])
def store(request, tmp_path_factory):
    with object_stores.running(request.param, tmp_path_factory.mktemp("server")) as running:
        yield running


# What the clients do is tested with both stores in tests/files/test_buckets.py; here each default
# test takes one of them, so that whole runs are seen on both.
def on(store, other):
    """Runs a test on a store, and with -m slow on the other one."""
    stores = [store, pytest.param(other, marks=pytest.mark.slow)]
    return pytest.mark.parametrize("store", stores, indirect=True)


@pytest.fixture
def machines(tmp_path, monkeypatch):
    """Returns a function that makes this process one of a new machine; returns its cache folder."""
    folder = tmp_path / "machines"
    folder.mkdir()
    return lambda: another_machine(monkeypatch, folder)


@dataclasses.dataclass
class BucketRun(Run):
    """A run in a bucket; its programs take turns on the machines of these cache folders."""

    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    caches: list[pathlib.Path] = dataclasses.field(default_factory=list)

    def start(self, *flags, **options):
        cache = self.caches.pop(0)
        self.caches.append(cache)
        return super().start(*flags, **options, **self.environment, XDG_CACHE_HOME=str(cache))


class Address(str):
    """The address of a workdir, in the place of its path."""

    def __truediv__(self, name: str) -> pathlib.Path:
        """The working copy of what is below it."""
        return pathlib.Path(buckets.copy_of(f"{self}/{name}"))


@pytest.fixture
def bucket_run(store, make_run):
    """Returns a function (name, changes) -> the small run, from text to checkpoints in a bucket."""

    def make(name: str, **changes) -> BucketRun:
        run = make_run(**changes)
        store.files().put_file(str(run.corpus), f"{object_stores.BUCKET}/text/corpus.txt")
        values = run.values | {
            "data.source": f"text:{store.address('text/*.txt')}",
            "data.dir": store.address(f"{name}-data"),
        }
        return BucketRun(Address(store.address(name)), values, environment=store.environment)

    return make


def finish_on(run, cache):
    """Runs to the end on the machine with this cache folder; returns standard output."""
    run.caches = [cache]
    code, out, err = run.finish()
    assert code == 0, err
    return err + out


def fetched(run, step):
    """The arrays of a checkpoint in the bucket."""
    buckets.local(run.workdir)
    buckets.fetch([run.checkpoints / str(step)])
    return run.arrays(step)


@on("s3", "gs")
def test_a_killed_run_goes_on_on_another_machine(store, bucket_run, machines, finished_run):
    run = bucket_run("killed", checkpoint__keep=100)
    run.caches = [machines()]
    process = run.start()
    kill_when(process, (run.checkpoints / "9.sha256.json").exists)
    assert "report.html" not in buckets.names(run.workdir / "")
    second = machines()
    assert "resumed    after step " in finish_on(run, second)
    buckets.local(run.workdir)
    assert run.metrics() == finished_run.metrics()
    assert_same_arrays(fetched(run, 20), finished_run.arrays(20))
    assert not list(second.rglob("*-32*.array_record.part"))
    # A third machine evaluates it.
    run.caches = [machines()]
    code, out, err = run.finish(mode="evaluate")
    assert code == 0, err
    assert "held-out" in out
    config = json.loads((run.workdir / "config.json").read_text())
    assert config["data"]["dir"] == store.address("killed-data")


@on("s3", "gs")
def test_other_settings_are_not_mixed_with_what_another_machine_prepares(
    store, bucket_run, machines
):
    run = bucket_run("claimed")
    folder, config = run.values["data.dir"], run.config
    machines()
    # As left by a machine that is at work, or was switched off.
    copy = buckets.local(folder)
    buckets.claim(f"{copy}/preparing.json", b'{"settings": {"seed": 7}}')
    with pytest.raises(ValueError, match=r"Other settings are being prepared in .*preparing.json"):
        prepare(config.data, copy, 1, log=lambda line: None)
