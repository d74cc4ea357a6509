"""What the name of a transport leads to: a built-in, a dotted path, or an underscored class name as in sbmt-outbox."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from boxengine.domain.names import underscore
from boxengine.settings.dotted_paths import CannotImport, import_module, load_object

HTTP = "http"
"""The short name of webhooks."""
KAFKA = "kafka"
"""The short name whose arguments have defaults in the top level's ``kafka``."""
_OF_THE_REFERENCE = {"sbmt/kafka_producer": KAFKA}
"""Transports that come as gems of sbmt-outbox, and what stands for them here."""
_UNDERSCORED = re.compile(r"[a-z_][a-z0-9_]*(/[a-z_][a-z0-9_]*)*")


class CannotFind(Exception):
    """Nothing has this name; the message says where it was looked for."""


def short_name(name: str) -> str:
    """``kafka`` for ``sbmt/kafka_producer``; every other name as it is."""
    return _OF_THE_REFERENCE.get(name, name)


def find(name: str, *, built_in: Mapping[str, str], app: Sequence[str]) -> Any:
    """The class, function, object or module of that name.

    ``produce_message`` is the class ``ProduceMessage`` in a module of ``app``, else in the module ``produce_message`` (of a
    package of ``app``, or of the path). ``shop/produce_message`` is looked for in the package or module ``shop`` likewise.

    Args:
        built_in: short name -> dotted path.
        app: names of the application's modules.

    Raises:
        CannotFind: there is nothing of that name, more than one thing, or its module cannot be imported.
    """
    try:
        if name in built_in:
            return load_object(built_in[name])
        if _UNDERSCORED.fullmatch(name):
            return _underscored(name, built_in, app)
        return load_object(name)
    except CannotImport as error:
        raise CannotFind(str(error)) from error


def _underscored(name: str, built_in: Mapping[str, str], app: Sequence[str]) -> Any:
    looked: list[str] = []
    for names in _places(name, app):
        found: dict[int, tuple[str, Any]] = {}
        for module_name in names:
            module = _module(module_name)
            looked.append(module_name)
            for path, value in _in(module, name):
                found.setdefault(id(value), (path, value))
        if len(found) > 1:
            paths = " and ".join(path for path, _ in found.values())
            raise CannotFind(f"{name!r} may mean {paths}; write the dotted path of the one that is meant")
        for _, value in found.values():
            return value
    wanted = _camelized(name)
    raise CannotFind(
        f"no transport is called {name!r}; expected one of {', '.join(sorted(built_in))}, a dotted path such as "
        f"package.module.{wanted}, or a class {wanted} in one of the modules {', '.join(dict.fromkeys(looked))}"
    )


def _places(name: str, app: Sequence[str]) -> Iterator[list[str]]:
    """Names of modules, the nearest first; what is equally near stands together."""
    path = name.replace("/", ".")
    namespace = path.rpartition(".")[0]
    if not namespace:
        yield [*app]
    else:
        yield [f"{module}.{namespace}" for module in app]
        yield [namespace]
    yield [f"{module}.{path}" for module in app]
    yield [path]


def _module(name: str) -> ModuleType | None:
    """None where there is none.

    Raises:
        CannotImport: it is there, and its code raised.
    """
    try:
        return import_module(name)
    except CannotImport as error:
        missing = error.__cause__
        if isinstance(missing, ModuleNotFoundError) and f"{name}.".startswith(f"{missing.name}."):
            return None
        raise


def _in(module: ModuleType | None, name: str) -> Iterator[tuple[str, Any]]:
    """A class of that name, whatever it writes in capitals; or the module itself, where it makes its transports."""
    if module is None:
        return
    last = name.rpartition("/")[2]
    for attribute, value in list(vars(module).items()):
        if isinstance(value, type) and underscore(attribute) == last:
            yield f"{module.__name__}.{attribute}", value
    if hasattr(module, "OutboxTransportFactory") and module.__name__.endswith(name.replace("/", ".")):
        yield module.__name__, module


def _camelized(name: str) -> str:
    return "".join(part.capitalize() for part in name.rpartition("/")[2].split("_"))
