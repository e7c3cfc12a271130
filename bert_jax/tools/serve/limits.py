"""What a server accepts: sizes, texts, requests that wait, and requests of a client."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of a server; what exceeds one is refused with a message that names it.

    Attributes:
      body_bytes: of a request.
      text_characters: of one text.
      inputs: of one request.
      masks: of one text.
      endings: of one context.
      waiting: requests that wait for the model.
      rate: requests a second of one client address, 0: any number; twice as many may come at once.
      body_seconds: until the body of a request is complete.
    """

    body_bytes: int = 1 << 18
    text_characters: int = 20_000
    inputs: int = 32
    masks: int = 8
    endings: int = 8
    waiting: int = 256
    rate: float = 100.0
    body_seconds: float = 20.0


# Addresses that a rate is counted for at a time.
_MOST_CLIENTS = 10_000


class RateLimiter:
    """Counts the requests of each client: a bucket that `rate` tokens a second flow into."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic):
        """Begins with full buckets.

        Args:
          rate: requests a second; 0: without a limit.
          clock: seconds.
        """
        self._rate, self._clock = rate, clock
        self._room = max(1.0, 2 * rate)
        # Address -> (tokens, when they were counted).
        self._clients: dict[str, tuple[float, float]] = {}

    def wait_for(self, client: str) -> float:
        """Counts a request and returns 0; or returns the seconds until the next is allowed."""
        if not self._rate:
            return 0.0
        now = self._clock()
        tokens, then = self._clients.get(client, (self._room, now))
        tokens = min(self._room, tokens + (now - then) * self._rate)
        if tokens < 1:
            return (1 - tokens) / self._rate
        self._clients[client] = tokens - 1, now
        if len(self._clients) > _MOST_CLIENTS:
            self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Removes clients whose buckets are full again; then the earliest ones, if too many."""
        full = self._room / self._rate
        recent = {name: item for name, item in self._clients.items() if now - item[1] < full}
        self._clients = dict(list(recent.items())[-_MOST_CLIENTS // 2 :])
