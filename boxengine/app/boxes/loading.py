"""Reads the configuration, for an application or for a worker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from boxengine.adapters.builtin import BUILTIN_TRANSPORTS, SOURCE_CHECKS
from boxengine.app.boxes.boxes import Boxes
from boxengine.settings import check_for_worker, load_and_resolve, load_for_creating

Paths = str | Path | Sequence[str | Path] | None


def load(path: Paths = None, env: str | None = None) -> Boxes:
    """Reads the configuration, for an application that creates items.

    What only a worker needs is read on first access to ``resolved``: until then transports are not imported, and the
    environment variables in their arguments need not be set.

    Args:
        path: one or more files, merged in order; None: where ``boxengine`` looks by itself.
        env: environment section; None: ``$BOXENGINE_ENV``, else ``development``.

    Raises:
        ConfigurationError: with every problem that was found.
        TypeError: ``path`` is the configuration itself, as a dict.
    """
    found, cwd = _paths(path), Path.cwd()
    complete = partial(
        load_and_resolve,
        found,
        env=env,
        environ=os.environ,
        cwd=cwd,
        builtin_transports=BUILTIN_TRANSPORTS,
        source_checks=SOURCE_CHECKS,
    )
    return Boxes(load_for_creating(found, env=env, environ=os.environ, cwd=cwd), complete=complete)


def load_for_worker(path: Paths = None, env: str | None = None) -> Boxes:
    """Reads the configuration and everything it names.

    Raises:
        ConfigurationError: with every problem that was found.
    """
    return Boxes(
        load_and_resolve(
            _paths(path),
            env=env,
            environ=os.environ,
            cwd=Path.cwd(),
            builtin_transports=BUILTIN_TRANSPORTS,
            source_checks=SOURCE_CHECKS,
            rules=check_for_worker,
        )
    )


def _paths(path: Paths) -> list[Path] | None:
    match path:
        case None:
            return None
        case str() | Path():
            return [Path(path)]
        case Mapping():
            raise TypeError(
                "the configuration is read from files: give the path of one, or several paths, not a mapping"
            )
        case _:
            return [Path(each) for each in path]
