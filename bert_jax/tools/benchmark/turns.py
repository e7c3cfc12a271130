"""Fair comparisons of programs on a machine with other load.

Each program has a separate process, so that libraries do not share threads or settings. The process
stays alive, and the programs run one at a time, in turns, so that other load affects all of them.
"""

import importlib
import multiprocessing
import multiprocessing.connection
import traceback
from collections.abc import Callable, Mapping
from typing import Any


class Rival:
    """A process that prepares something once and measures it on request."""

    def __init__(self, module: str, function: str, **settings: Any):
        """Starts `module.function(**settings)`, which returns (properties, measure) there.

        Properties are a dict; measure() returns a list of numbers.
        """
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        target = (theirs, module, function, settings)
        self._process = context.Process(target=_serve, args=target, daemon=True)
        self._process.start()
        theirs.close()
        self.properties: dict[str, Any] = self._receive()

    def measure(self) -> list[float]:
        """One turn."""
        self._connection.send("measure")
        return self._receive()

    def close(self) -> None:
        """Ends the process and waits until its memory is free."""
        self._connection.close()
        self._process.join()

    def _receive(self) -> Any:
        try:
            is_good, answer = self._connection.recv()
        except EOFError:
            raise RuntimeError("A rival's process died; was there enough memory?") from None
        if not is_good:
            raise RuntimeError(f"In a rival's process:\n{answer}")
        return answer


def take_turns(
    rivals: Mapping[str, Rival],
    rounds: int,
    report: Callable[[str, list[float]], None] = lambda name, numbers: None,
) -> dict[str, list[float]]:
    """Returns all numbers of each program after `rounds` turns each, in an order that alternates.

    `report(name, numbers)` is called after each turn.
    """
    numbers: dict[str, list[float]] = {name: [] for name in rivals}
    for i in range(rounds):
        for name in list(rivals)[:: 1 if i % 2 else -1]:
            found = rivals[name].measure()
            report(name, found)
            numbers[name] += found
    return numbers


def _serve(
    connection: multiprocessing.connection.Connection,
    module: str,
    function: str,
    settings: dict[str, Any],
) -> None:
    try:
        properties, measure = getattr(importlib.import_module(module), function)(**settings)
        connection.send((True, properties))
        while True:
            connection.recv()
            connection.send((True, measure()))
    except (EOFError, KeyboardInterrupt):
        pass
    except Exception:
        connection.send((False, traceback.format_exc()))
