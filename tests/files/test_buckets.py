"""Working copies of buckets, against server programs of S3 and Google Cloud Storage."""

import pathlib
import re
import threading
import time
import types

import pytest

from bert_jax.files import atomic, buckets
from tests import object_stores
from tests.object_stores import BUCKET, another_machine

# Of the clients, which send short files as they are and leave closing to the end of the process.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module", params=["s3", "gs"])
def store(request, tmp_path_factory):
    with object_stores.running(request.param, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Returns a function that makes this process one of a new machine."""
    folder = tmp_path / "machines"
    folder.mkdir()
    another_machine(monkeypatch, folder)
    return lambda: another_machine(monkeypatch, folder)


@pytest.fixture
def address(store, request):
    """A folder in the bucket that is this test's alone."""
    return store.address(re.sub(r"\W", "-", request.node.name))


def content(store, address):
    """What another client finds below an address, by relative name."""
    key = address.partition("://")[2]
    files = store.files()
    return {name[len(key) + 1 :]: files.cat_file(name) for name in files.find(key)}


def test_what_is_written_to_a_copy_is_in_the_bucket(store, machine, address, tmp_path):
    copy = pathlib.Path(buckets.local(f"{address}/run"))
    copy.mkdir()
    atomic.write_text(copy / "a.txt", "first")
    atomic.write_text(copy / "a.txt", "second")
    with atomic.whole_folder(copy / "model") as folder:
        pathlib.Path(folder, "deep").mkdir()
        pathlib.Path(folder, "deep", "weights").write_bytes(bytes(range(256)) * 5000)
    for end in (b"\r", b"\n", b"\r\n"):
        atomic.write_bytes(copy / f"ends{len(end)}{end[0]}", b"a\r\nb" + end)
    with atomic.AppendFile(copy / "lines.jsonl") as lines:
        lines.write_line("1")
        lines.sync()
        assert content(store, f"{address}/run")["lines.jsonl"] == b"1\n"
        lines.write_line("2")
    atomic.write_text(tmp_path / "elsewhere.txt", "stays here")
    assert content(store, f"{address}/run") == {
        "a.txt": b"second",
        "model/deep/weights": bytes(range(256)) * 5000,
        "lines.jsonl": b"1\n2\n",
        "ends113": b"a\r\nb\r",
        "ends110": b"a\r\nb\n",
        "ends213": b"a\r\nb\r\n",
    }


def test_unfinished_work_stays_here(store, machine, address):
    copy = pathlib.Path(buckets.local(f"{address}/data"))
    (copy / "unfinished").mkdir(parents=True)
    atomic.write_text(copy / "unfinished" / "counts.json", "{}")
    with atomic.whole_file(copy / "a.txt") as part:
        atomic.write_text(part, "a")
        assert not content(store, f"{address}/data")
    assert content(store, f"{address}/data") == {"a.txt": b"a"}


def test_another_machine_reads_what_this_one_wrote(store, machine, address):
    folder = f"{address}/run"
    first = pathlib.Path(buckets.local(folder))
    first.mkdir()
    for name in ("config.json", "old.txt", "seed-0/metrics.jsonl"):
        (first / name).parent.mkdir(exist_ok=True)
        atomic.write_text(first / name, name)
    machine()
    second = pathlib.Path(buckets.local(folder))
    assert second != first
    assert (second / "seed-0" / "metrics.jsonl").read_text() == "seed-0/metrics.jsonl"
    before = (second / "config.json").stat().st_mtime_ns

    store.files().pipe_file(f"{BUCKET}/{folder.partition(BUCKET)[2][1:]}/new.txt", b"new")
    store.files().pipe_file(f"{BUCKET}/{folder.partition(BUCKET)[2][1:]}/old.txt", b"changed")
    store.files().rm_file(f"{BUCKET}/{folder.partition(BUCKET)[2][1:]}/seed-0/metrics.jsonl")
    (second / "mine.txt").write_text("of this machine")
    buckets.refresh(str(second))
    assert (second / "new.txt").read_text() == "new"
    assert (second / "old.txt").read_text() == "changed"
    assert not (second / "seed-0" / "metrics.jsonl").exists()
    assert (second / "mine.txt").exists()
    assert (second / "config.json").stat().st_mtime_ns == before  # was not read again


def test_shards_and_checkpoints_come_when_they_are_needed(store, machine, address):
    copy = pathlib.Path(buckets.local(f"{address}/run"))
    needed = ["checkpoints/10/params/d", "data/train-32.array_record"]
    for name in ["checkpoints/10.sha256.json", "data/manifest.json", *needed]:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(copy / name, name)
    machine()
    copy = pathlib.Path(buckets.local(f"{address}/run"))
    assert (copy / "checkpoints" / "10.sha256.json").exists()
    assert (copy / "data" / "manifest.json").exists()
    assert not any((copy / name).exists() for name in needed)
    assert buckets.names(copy / "checkpoints") == {"10.sha256.json", "10"}
    buckets.fetch([copy / "checkpoints" / "10", copy / needed[1]])
    assert all((copy / name).read_text() == name for name in needed)


def test_folders_are_moved_and_removed_in_the_bucket_too(store, machine, address):
    copy = pathlib.Path(buckets.local(f"{address}/run"))
    (copy / "10" / "params").mkdir(parents=True)
    atomic.write_text(copy / "10" / "params" / "d", "d")
    atomic.write_text(copy / "10" / "meta", "m")
    atomic.write_text(copy / "1000", "another")
    machine()  # which has no copy of them
    copy = pathlib.Path(buckets.local(f"{address}/run")).with_name("run")
    buckets.move(copy / "10", copy / "damaged-10")
    assert content(store, f"{address}/run") == {
        "1000": b"another",
        "damaged-10/params/d": b"d",
        "damaged-10/meta": b"m",
    }
    buckets.remove(copy / "damaged-10")
    buckets.remove(copy / "nothing")
    assert content(store, f"{address}/run") == {"1000": b"another"}


def test_wildcards_are_those_of_files(store, machine, address):
    for name in ("b.txt", "a.txt", "c.json", "deep/d.txt"):
        store.files().pipe_file(f"{address.partition('://')[2]}/{name}", name.encode())
    pattern = pathlib.Path(buckets.local(f"{address}/*.txt"))
    assert sorted(path.name for path in pattern.parent.glob(pattern.name)) == ["a.txt", "b.txt"]


def test_an_upload_that_fails_leaves_the_old_file(store, machine, address, monkeypatch):
    copy = pathlib.Path(buckets.local(f"{address}/run"))
    copy.mkdir()
    atomic.write_text(copy / "a.txt", "old")

    def refused(*_):
        raise ValueError("no")

    monkeypatch.setattr(buckets, "_upload", refused)
    with pytest.raises(ValueError, match="no"):
        atomic.write_text(copy / "a.txt", "new")
    assert (copy / "a.txt").read_text() == "old"
    assert content(store, f"{address}/run") == {"a.txt": b"old"}


def test_the_first_claim_counts(store, machine, address):
    first = buckets.claim(f"{buckets.local(address)}/claim.json", b"first")
    machine()
    second = buckets.claim(f"{buckets.local(address)}/claim.json", b"second")
    assert first == second == b"first"


def test_what_is_removed_after_it_was_listed_is_not_there(store, machine, address, monkeypatch):
    copy = pathlib.Path(buckets.local(f"{address}/run"))
    copy.mkdir()
    for name in ("a.txt", "claim.json"):
        atomic.write_text(copy / name, "old")
    machine()
    copy = pathlib.Path(buckets.local(f"{address}/run"))
    key, files = f"{address.partition('://')[2]}/run/claim.json", store.files()
    files.pipe_file(key, b"changed")
    objects = buckets._objects

    def then_removed(address):
        found = objects(address)
        files.rm_file(key)
        return found

    monkeypatch.setattr(buckets, "_objects", then_removed)
    buckets.refresh(str(copy))
    assert [path.name for path in copy.iterdir()] == ["a.txt"]


def test_a_claim_that_another_machine_takes_back_is_made_again(
    store, machine, address, monkeypatch
):
    path = f"{buckets.local(address)}/claim.json"
    buckets.claim(path, b"first")
    files, others = buckets._file_system(store.scheme), store.files()
    cat_file = files.cat_file

    def after_it_was_removed(key):
        if others.cat_file(key) == b"first":
            others.rm_file(key)
        return cat_file(key)

    monkeypatch.setattr(files, "cat_file", after_it_was_removed)
    assert buckets.claim(path, b"second") == b"second"
    assert content(store, address) == {"claim.json": b"second"}


def test_a_bucket_that_does_not_exist_is_named(store, machine):
    with pytest.raises(ValueError, match=rf"there is no bucket {store.scheme}://nothing"):
        buckets.local(f"{store.scheme}://nothing/run")
    with pytest.raises(ValueError, match="names a whole bucket"):
        buckets.local(store.address(""))


@pytest.fixture
def network(store, monkeypatch):
    """A network in between that can fail; the clients repeat little, and soon."""
    passing = object_stores.Network(store.port)
    for name, value in store.at(passing.port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(buckets, "_FIRST_PAUSE", 0.1)
    if store.scheme == "s3":
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        monkeypatch.setattr("s3fs.S3FileSystem.retries", 1)
    else:  # a random number is part of its pauses, in seconds
        monkeypatch.setattr("gcsfs.retry.random", types.SimpleNamespace(random=lambda: -64.0))
    buckets.forget()
    yield passing
    passing.close()


def test_a_network_that_fails_for_a_while_is_waited_for(store, machine, address, network, caplog):
    copy = pathlib.Path(buckets.local(f"{address}/run"))
    copy.mkdir()
    network.down = True

    def repair():
        while network.refused < 3:
            time.sleep(0.01)
        network.down = False

    threading.Thread(target=repair).start()
    atomic.write_text(copy / "a.txt", "arrived")
    assert content(store, f"{address}/run") == {"a.txt": b"arrived"}
    assert network.refused >= 3


def test_a_network_that_stays_away_is_one_line(store, machine, address, network, monkeypatch):
    copy = pathlib.Path(buckets.local(f"{address}/run"))
    copy.mkdir()
    monkeypatch.setattr(buckets, "_RETRY_SECONDS", 0.1)
    network.down = True
    with pytest.raises(ValueError, match=r"could not be reached .* run the command again") as error:
        atomic.write_text(copy / "a.txt", "lost")
    assert "\n" not in str(error.value)
    assert not (copy / "a.txt").exists()


class Refused(OSError):
    code = 403


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError("Forbidden"), "do not allow this"),
        (Refused("no access"), "do not allow this"),
        (ImportError("Install s3fs"), r"pip install 'bert_jax\[s3\]'"),
    ],
)
def test_what_waiting_does_not_mend_is_said_at_once(error, message, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(buckets, "_file_system", fail)
    with pytest.raises(ValueError, match=message):
        buckets.local("s3://bucket/run")


def test_missing_credentials_are_named(monkeypatch):
    pytest.importorskip("s3fs")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nothing")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nothing")
    with pytest.raises(ValueError, match="no credentials were found"):
        buckets.local("s3://bucket/without-credentials")


def test_messages_show_addresses(machine):
    copy = buckets.copy_of("gs://bucket/run/")
    assert buckets.shown(f"{copy}/a.txt and /b") == "gs://bucket/run/a.txt and /b"
    assert buckets.address_of(copy) == "gs://bucket/run"
    assert not buckets.address_of("/somewhere/else")
