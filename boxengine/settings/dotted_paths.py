"""What dotted paths lead to."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from boxengine.errors import described


class CannotImport(Exception):
    """A dotted path leads nowhere; the message says how far it went and why it stopped."""


def load_object(path: str) -> Any:
    """What ``package.module.Name`` (or ``package.module:Name``) leads to; a module, where it ends at one.

    Importing runs the module's code: whatever that raises is reported as ``CannotImport`` with the original as cause.

    Raises:
        CannotImport: a part of the path is not there, or importing it raised.
    """
    parts = path.replace(":", ".").split(".")
    _check_form(path, parts)
    found: Any = import_module(parts[0])
    reached = parts[0]
    for part in parts[1:]:
        if not hasattr(found, part) and isinstance(found, ModuleType) and hasattr(found, "__path__"):
            found = import_module(f"{reached}.{part}")
        elif hasattr(found, part):
            found = getattr(found, part)
        else:
            kind = "module" if isinstance(found, ModuleType) else type(found).__name__
            raise CannotImport(f"cannot import {path!r}: {kind} {reached!r} has no {part!r}")
        reached = f"{reached}.{part}"
    return found


def import_module(name: str) -> ModuleType:
    """The module of that name.

    Raises:
        CannotImport: it is not there, or its code raised.
    """
    _check_form(name, name.split("."))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CannotImport(_not_there(name)) from error
        raise CannotImport(f"importing {name!r} failed: {described(error)}") from error
    except (Exception, SystemExit) as error:
        # A user's module may raise anything at all, and all of it is a mistake in the configuration to be listed.
        raise CannotImport(f"importing {name!r} raised {described(error)}{_already_runs(name)}") from error


def _already_runs(name: str) -> str:
    """What helps if the module is the program itself: Python runs it again under its own name, and it makes every table anew."""
    running = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        spec = importlib.util.find_spec(name)
    except (Exception, SystemExit):
        # This imports the package around the module, and that may be what has failed.
        return ""
    if running is None or spec is None or spec.origin is None or Path(running).resolve() != Path(spec.origin).resolve():
        return ""
    program = Path(running).name
    return (
        f"; {program} is the program that runs, and is imported a second time: move what it starts to a file of its own"
    )


def _check_form(path: str, parts: list[str]) -> None:
    if not all(part.isidentifier() for part in parts):
        raise CannotImport(f"{path!r} is not a dotted path such as package.module.Name")


def _not_there(name: str) -> str:
    parent, _, last = name.rpartition(".")
    if parent:
        where = f"{_what_python_took(parent)} has no {last!r}"
    elif last[:1].isupper():
        where = f"there is no such module on the path; a class needs its module in front, as in package.module.{last}"
    else:
        where = f"there is no such module on the path; start in the folder that holds {last}, or name that folder in PYTHONPATH"
    return f"cannot import {name!r}: {where}"


def _what_python_took(name: str) -> str:
    """What a module is to somebody who looks for one of its parts."""
    module = sys.modules.get(name)
    path = getattr(module, "__path__", None)
    if module is None or path is None:
        return f"module {name!r}"
    if getattr(module, "__file__", None) is None:
        # From the folder above, a folder passes for the module of the same name that lies in it.
        return f"{name!r}, the folder {', '.join(path)} without __init__.py,"
    return f"package {name!r}"
