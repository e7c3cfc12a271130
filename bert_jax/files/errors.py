"""The error that a user can fix."""

import contextlib
import re
from collections.abc import Iterator

# A flag of the command line in a message; a command as a whole stays as it is.
_FLAG = re.compile(r"--(?:config\.)?([a-z]\w*(?:\.\w+)*)(?:=([a-z][\w:]*(?:\.\w+)*|\d+%))?")
_COMMAND = "bert_jax "


class UserError(ValueError):
    """A value, file or setting that the user can fix; the message says how.

    The command line prints the message on one line and exits with code 2. Every other exception
    is a defect of the program and keeps its traceback.
    """


@contextlib.contextmanager
def python_spelling() -> Iterator[None]:
    """Writes flags in error messages as arguments of Python; also a decorator.

    `--config.task.label=NAME` becomes `task__label=NAME`, `--long=truncate` `long="truncate"`.
    """
    try:
        yield
    except UserError as error:
        error.args = (spell_in_python(str(error)),)
        raise


def spell_in_python(text: str) -> str:
    """Returns a text with its flags as arguments of Python, unless it names a command to run."""
    if _COMMAND in text:
        return text
    return _FLAG.sub(_argument, text)


def _argument(flag: re.Match[str]) -> str:
    name, value = flag[1].replace(".", "__"), flag[2]
    if value is None:
        return name
    return f"{name}={value.title()}" if value in ("true", "false") else f'{name}="{value}"'
