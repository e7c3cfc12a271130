"""Services of small models with random parameters, and clients of their applications."""

import functools
from collections.abc import Callable

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from starlette.testclient import TestClient  # noqa: E402

from bert_jax.config.run import RunConfig  # noqa: E402
from bert_jax.inference.loading import load_model  # noqa: E402
from bert_jax.tools.serve.app import make_app  # noqa: E402
from bert_jax.tools.serve.batching import Batcher  # noqa: E402
from bert_jax.tools.serve.guard import Guard  # noqa: E402
from bert_jax.tools.serve.service import Service  # noqa: E402
from tests.inference.conftest import make_run, make_workdir, workdir  # noqa: E402
from tests.tools.pages.conftest import browser, visit  # noqa: E402
from tests.tools.serve.models import make_model  # noqa: E402

__all__ = ["browser", "make_run", "make_workdir", "visit", "workdir"]


def client_of(service: Service, max_waiting: int = 256, rate: float = 0) -> TestClient:
    app = make_app(service, Batcher(max_waiting), rate)
    guard = Guard(app, rate, is_local=True)
    return TestClient(guard, "http://127.0.0.1:8000", raise_server_exceptions=False)


def load(workdir: str) -> Service:
    return Service(load_model(workdir))


@pytest.fixture(scope="session")
def models(make_run) -> Callable[[str], tuple[RunConfig, str, Service]]:
    """Returns a function: name in MODELS -> configuration, workdir and service, made once."""

    @functools.cache
    def model(name: str) -> tuple[RunConfig, str, Service]:
        config, workdir = make_model(make_run, name)
        return config, workdir, load(workdir)

    return model


@pytest.fixture
def client(models) -> TestClient:
    """Client of a pre-trained model."""
    return client_of(models("masks")[2])
