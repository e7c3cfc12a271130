"""Applications of small models with random parameters, and requests to them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from starlette.testclient import TestClient  # noqa: E402

from bert_jax.config import store  # noqa: E402
from bert_jax.tools.serve.app import make_app  # noqa: E402
from bert_jax.tools.serve.batching import Batcher  # noqa: E402
from bert_jax.tools.serve.guard import Guard  # noqa: E402
from bert_jax.tools.serve.limits import Limits  # noqa: E402
from bert_jax.tools.serve.service import Service  # noqa: E402
from tests.inference.conftest import make_run, make_workdir, workdir  # noqa: E402
from tests.tools.pages.conftest import browser, visit  # noqa: E402

__all__ = ["browser", "make_run", "make_workdir", "visit", "workdir"]

JSON = {"Content-Type": "application/json"}
Ask = Callable[..., tuple[int, Any]]


@contextlib.contextmanager
def opened(service: Any, limits: Limits | None = None) -> Iterator[TestClient]:
    """A client of an application; its model ends with the block."""
    limits = limits or Limits(rate=0)
    batcher = Batcher(limits.waiting)
    guard = Guard(make_app(service, batcher, limits), limits.rate, is_local=True)
    # Without a `with` of its own it does not ask for the protocol "lifespan".
    yield TestClient(guard, "http://127.0.0.1:8000", raise_server_exceptions=False)
    batcher.close()


def load(workdir: str, limits: Limits | None = None) -> Service:
    return Service(store.load(workdir), workdir, limits or Limits(rate=0))


@pytest.fixture(scope="session")
def pretrained(make_workdir) -> Service:
    return load(make_workdir(model__num_layers=2))


@pytest.fixture
def client(pretrained) -> Iterator[TestClient]:
    """Of a pre-trained model."""
    with opened(pretrained) as client:
        yield client


@pytest.fixture
def ask(client) -> Ask:
    """(ability, inputs) -> status and answer, of a pre-trained model."""

    def ask(ability: str, inputs: list[Any]) -> tuple[int, Any]:
        response = client.post(f"/api/{ability}", json={"inputs": inputs})
        return response.status_code, response.json()

    return ask
