"""Finds and loads configuration files, also those that come with the package."""

import importlib
import importlib.util
import os
import pathlib
import sys
import types

from ml_collections import ConfigDict

from bert_jax.files.errors import UserError

# What a file with a mistake in it raises.
_FAULTS = (AttributeError, ImportError, LookupError, NameError, OSError, SyntaxError, TypeError)
_PACKAGE = pathlib.Path(__file__).resolve().parents[1]


def folder() -> pathlib.Path:
    """Returns the folder of the package's configurations.

    In a checkout it stands beside the package; an installed package contains it.
    """
    installed = _PACKAGE / "configs"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"


def find(path: str, flag: str = "--config") -> str:
    """Returns the path of a configuration file, first as given, then among the package's.

    Args:
      path: path of the file, or its name in configs/, possibly with an argument:
        `configs/glue.py:mrpc` or `glue:mrpc`.
      flag: name of the flag, for messages.

    Raises:
      UserError: there is no such file.
    """
    file, colon, argument = path.partition(":")
    if not file.endswith(".py"):
        file = f"configs/{file}.py"
    if os.path.isfile(file):
        return f"{file}{colon}{argument}"
    first, *rest = pathlib.PurePath(file).parts or ("",)
    packaged = folder().joinpath(*rest)
    if first != "configs":
        raise UserError(f"{flag}={path}: there is no such file.")
    if not packaged.is_file():
        raise UserError(
            f"{flag}={path}: there is no such file, neither in the current directory nor in the"
            f" installed package ({folder()})."
        )
    return f"{packaged}{colon}{argument}"


def allow_import() -> None:
    """Makes `from configs import base` find the package's configurations from everywhere.

    A folder `configs` on the import path takes precedence, file by file.
    """
    if "configs" in sys.modules:
        return
    spec = importlib.util.find_spec("configs")
    if spec and spec.origin:  # somebody's package
        module = importlib.import_module("configs")
    else:
        module = types.ModuleType("configs", "Configurations of several folders.")
        module.__path__ = list((spec and spec.submodule_search_locations) or ())
        sys.modules["configs"] = module
    module.__path__.append(str(folder()))


def load_module(path: str, flag: str = "--config") -> types.ModuleType:
    """Loads a settings file as a module.

    Args:
      path: path as `find` takes it, without an argument.
      flag: name of the flag, for messages.

    Raises:
      UserError: there is no such file, or it cannot be run.
    """
    file = find(path, flag)
    allow_import()
    spec = importlib.util.spec_from_file_location(f"config_{pathlib.Path(file).stem}", file)
    if spec is None or spec.loader is None:
        raise UserError(f"{flag}={path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (ValueError, *_FAULTS) as error:
        raise UserError(f"{flag}={path} cannot be used: {error}") from error
    return module


def load(path: str) -> ConfigDict:
    """Returns the configuration of a file, whose fields are fixed and whose values can be set.

    Args:
      path: path as `find` takes it; the argument after the colon goes to the file's `get_config`.

    Raises:
      UserError: there is no such file, it cannot be run, or it refuses the argument.
    """
    file, *argument = path.split(":", 1)
    module = load_module(file)
    try:
        config = module.get_config(*argument)
    except ValueError as error:
        raise UserError(f"--config={path}: {error}") from error
    except _FAULTS as error:
        raise UserError(f"--config={path} cannot be used: {error}") from error
    if not isinstance(config, ConfigDict):
        raise UserError(f"--config={path}: get_config returns a {type(config).__name__}.")
    return config.lock()
