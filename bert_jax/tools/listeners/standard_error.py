"""What commands print on standard error: errors, and warnings of this package, one a line.

What libraries report stays, but for errors about hardware that the machine lacks.
"""

import logging

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
    logging.getLogger("absl").addFilter(_is_not_of_orbax)
    # It prints the traceback of each failure that it repeats.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    """Hides the warnings of orbax, which repeat its arguments."""
    return record.levelno >= logging.ERROR or "orbax" not in record.pathname


class _Formatter(logging.Formatter):
    """Shows bucket addresses instead of local cache paths."""

    def format(self, record: logging.LogRecord) -> str:
        return buckets.shown(super().format(record))
