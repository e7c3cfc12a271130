"""What commands print on standard error: errors, and warnings of this package, one a line.

Messages of libraries are kept, except for errors about hardware that the machine lacks. Standard
output shows bucket addresses, too.
"""

import logging
from typing import Any, TextIO

from bert_jax.devices import absent
from bert_jax.files import buckets


def set_up() -> None:
    """Prints the warnings of this package as lines "warning    TEXT"; call it before jax starts."""
    absent.silence()
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("warning    %(message)s"))
    logger = logging.getLogger("bert_jax")
    logger.addHandler(handler)
    logger.propagate = False  # other libraries may add handlers of their own
    # orbax's warnings repeat its arguments.
    logging.getLogger("absl").addFilter(lambda record: record.levelno >= logging.ERROR)
    # gcsfs prints the traceback of each failure that it retries.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)


class _Formatter(logging.Formatter):
    """Shows bucket addresses instead of local cache paths."""

    def format(self, record: logging.LogRecord) -> str:
        return buckets.shown(super().format(record))


class WithAddresses:
    """A text stream that prints bucket addresses instead of local cache paths."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(buckets.shown(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
