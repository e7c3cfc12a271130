"""Weights & Biases and MLflow get each value of a run once it is resumed; the packages are real."""

import json
import math
import pathlib
import struct
import time
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from bert_jax.config.task import default_config
from bert_jax.tools.listeners.trackers import make_trackers
from bert_jax.training.listener import Evaluation

Values = dict[str, list[tuple[int, float]]]


def state_of(step: int) -> Any:
    return SimpleNamespace(step=step)


def run_twice(name: str, workdir: pathlib.Path) -> list[str]:
    """Trains to step 4 from the beginning, and to the end from the checkpoint of step 2."""
    lines: list[str] = []
    workdir.mkdir(parents=True, exist_ok=True)
    for first, last in ((0, 4), (2, 6)):
        config = default_config("pretraining").replace({"log.every": str(last)})  # it may change
        run: Any = SimpleNamespace(workdir=str(workdir), config=config)
        (tracker,) = make_trackers(name, lines.append)
        tracker.started(run, state_of(first))
        for step in range(first + 1, last + 1):
            tracker.progress(step, 6)
            tracker.metrics(step, "train", {"loss": 1 / step}, {"tokens_per_second": 5.0})
        scores = Evaluation({"loss": 0.5 * last, "accuracy": math.nan}, ())
        tracker.metrics(last, "validation", scores.values, {})
        tracker.evaluation(run, last, scores, is_last=last == 6, is_chosen=last == 6)
        tracker.close()
        tracker.metrics(9, "train", {"loss": 0.0}, {})  # nothing is open
    return lines


EXPECTED = {
    "train/loss": [(step, 1 / step) for step in (1, 2, 3, 4, 3, 4, 5, 6)],
    "validation/loss": [(4, 2.0), (6, 3.0)],
    "final/loss": [(6, 3.0)],
}


def test_mlflow_continues_one_run(tmp_path, monkeypatch):
    client = pytest.importorskip("mlflow.tracking").MlflowClient
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "tests")
    assert run_twice("mlflow", tmp_path / "runs" / "mine") == []
    experiment = client().get_experiment_by_name("tests")
    (run,) = client().search_runs([experiment.experiment_id])
    ids = json.loads((tmp_path / "runs" / "mine" / "trackers.json").read_text())
    assert ids == {"mlflow": run.info.run_id}
    assert (run.info.run_name, run.info.status) == ("runs/mine", "FINISHED")
    config = default_config("pretraining").fields()
    assert set(run.data.params) == set(config) and run.data.params["log.every"] == "4"
    assert float(run.data.params["optimizer.learning_rate"]) == config["optimizer.learning_rate"]
    for name, values in EXPECTED.items():
        history = client().get_metric_history(run.info.run_id, name)
        assert [(value.step, value.value) for value in history] == values
    assert math.isnan(run.data.metrics["final/accuracy"])


def test_a_run_goes_on_without_its_server(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    def fail(*arguments, **values):
        raise MlflowException("the server\nis gone")

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    lines: list[str] = []
    (tracker,) = make_trackers("mlflow", lines.append)
    run: Any = SimpleNamespace(workdir=str(tmp_path), config=default_config("pretraining"))
    tracker.started(run, state_of(0))
    monkeypatch.setattr(MlflowClient, "log_batch", fail)
    tracker.metrics(3, "train", {"loss": 1.0}, {})
    assert lines == ["MLflow has not got the metrics of step 3: the server is gone"]
    monkeypatch.setattr(MlflowClient, "create_run", fail)
    (tmp_path / "trackers.json").unlink()
    with pytest.raises(ValueError, match=r"MLflow cannot be used \(the server is gone\): set MLFL"):
        tracker.started(run, state_of(0))


def read_offline(path: pathlib.Path) -> tuple[Values, dict[str, Any]]:
    """Returns history and configuration of a .wandb file, which has the blocks of LevelDB's log."""
    history, config = defaultdict(list), {}
    records = read_records(path)
    for _ in range(300):  # another process writes the file, and may be late
        if records and records[-1].HasField("exit"):
            break
        time.sleep(0.1)
        records = read_records(path)
    for record in records:
        row = {i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.history.item}
        for name, value in row.items():
            history[name].append((row["step"], value))
        for item in record.run.config.update:
            config[item.key] = json.loads(item.value_json)
    return history, config


def read_records(path: pathlib.Path) -> list[Any]:
    from wandb.proto import wandb_internal_pb2 as proto

    data, at, body, records = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        body += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or its last part
            records.append(getattr(proto, "Record").FromString(body))  # noqa: B009 (made at import)
            body = b""
    return records


def test_wandb_continues_one_run_without_a_connection(tmp_path, monkeypatch, capfd):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert run_twice("wandb", tmp_path) == []
    (id,) = json.loads((tmp_path / "trackers.json").read_text()).values()
    paths = sorted((tmp_path / "wandb").glob(f"offline-run-*-{id}/run-{id}.wandb"))
    assert len(paths) == 2  # what each start wrote, of the same run
    found: Values = defaultdict(list)
    for path in paths:
        history, config = read_offline(path)
        for name, values in history.items():
            found[name] += values
        assert config.get("model.hidden_size") == 768
    for name, values in EXPECTED.items():
        assert found[name] == values


def test_a_missing_package_and_an_unknown_name_are_refused(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    for name, message in (
        ("mlflow", "--trackers=mlflow needs a package: pip install"),
        ("tensorboard", "Unknown tracker 'tensorboard'. Available: wandb, mlflow"),
    ):
        with pytest.raises(ValueError, match=message):
            make_trackers(name, print)
