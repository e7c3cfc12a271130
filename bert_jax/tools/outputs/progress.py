"""Reports to a listener how many examples are done, and the speed at the end."""

import time

from bert_jax.training.listener import Listener


class Progress:
    """Counts examples that a model has answered.

    Args:
      total: number of examples.
      listener: receives the counts and lines; None: nobody does.
    """

    def __init__(self, total: int, listener: Listener | None = None):
        self._listener, self._total, self._done = listener or Listener(), total, 0
        self.line = self._listener.line
        self._start = time.perf_counter()

    def add(self, count: int) -> None:
        """Adds examples that are done."""
        self._done += count
        self._listener.progress(self._done, self._total)

    def finish(self, count: int, what: str) -> None:
        """Reports "1,000 lines answered in FILE: 12.3 s, 81.3 lines/s, compiling included"."""
        seconds = time.perf_counter() - self._start
        name = what.split()[0]
        self.line(
            f"{count:,} {what}: {seconds:.1f} s, {count / seconds:,.1f} {name}/s, compiling"
            " included"
        )
