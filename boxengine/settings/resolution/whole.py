"""All that the settings name, resolved together; mistakes of the file and of what it names are reported at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import TYPE_CHECKING

from boxengine.engine.delivering.calls.pipeline import Middleware, Middlewares
from boxengine.engine.jobs.pipeline import JobPipeline
from boxengine.errors import ConfigurationError, Problem
from boxengine.settings import loading, rules
from boxengine.settings.resolution.boxes import ItemBoxes
from boxengine.settings.resolution.creating import read_by_creators
from boxengine.settings.resolution.jobs import JobBoxes
from boxengine.settings.resolution.named import Named
from boxengine.settings.resolution.resolved import Resolved
from boxengine.settings.resolution.sources import Sources
from boxengine.settings.rules import Rules
from boxengine.settings.schema import MiddlewaresSettings, Settings

if TYPE_CHECKING:
    from boxengine.ports import ErrorTracker

NO_CHECKS: Mapping[str, str] = MappingProxyType({})


def resolve(
    settings: Settings, *, builtin_transports: Mapping[str, str], source_checks: Mapping[str, str] = NO_CHECKS
) -> Resolved:
    """Imports everything the settings name by dotted path, the modules of ``app`` first.

    Strategies, middlewares and the error tracker are made here; transports only when the worker needs them.

    Args:
        settings: what ``load`` returned.
        builtin_transports: short name -> dotted path.
        source_checks: likewise, of what looks at the arguments of a source.

    Raises:
        ConfigurationError: with every problem that was found.
    """
    whole = _Whole(settings, builtin_transports, source_checks)
    resolved = whole.run()
    if whole.named.found:
        raise ConfigurationError(loading.problems_of(whole.named.found, settings.origin))
    return resolved


def load_and_resolve(
    paths: Sequence[FilePath] | None,
    *,
    env: str | None,
    environ: Mapping[str, str],
    cwd: FilePath,
    builtin_transports: Mapping[str, str],
    source_checks: Mapping[str, str] = NO_CHECKS,
    rules: Rules = rules.check,
) -> Resolved:
    """``load`` and ``resolve`` in one, so that wrong keys and unimportable classes are reported together.

    Raises:
        ConfigurationError: with every problem that was found.
    """
    examination = loading.examine(paths, env=env, environ=environ, cwd=cwd, rules=rules)
    whole = _Whole(examination.settings, builtin_transports, source_checks)
    return _without_problems(whole, whole.run(), examination)


def load_for_creating(
    paths: Sequence[FilePath] | None, *, env: str | None, environ: Mapping[str, str], cwd: FilePath
) -> Resolved:
    """What a process needs that creates items and delivers none.

    The pipelines have no transports and no strategies: nothing of the worker's is imported or made, and environment variables
    that only the worker reads need not be set. All else is checked as for a worker.

    Raises:
        ConfigurationError: with every problem that was found.
    """
    examination = loading.examine(paths, env=env, environ=environ, cwd=cwd, needed=read_by_creators)
    whole = _Whole(examination.settings, {}, NO_CHECKS)
    return _without_problems(whole, whole.run_for_creating(), examination)


def _without_problems(whole: _Whole, resolved: Resolved, examination: loading.Examination) -> Resolved:
    new = [finding for finding in whole.named.found if not loading.depends_on(finding, examination.broken)]
    problems: list[Problem] = [*examination.problems, *loading.problems_of(new, examination.settings.origin)]
    if problems:
        raise ConfigurationError(tuple(dict.fromkeys(problems)))
    return resolved


class _Whole:
    def __init__(
        self, settings: Settings, builtin_transports: Mapping[str, str], source_checks: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._source_checks = source_checks
        self.named = Named()
        self._boxes = ItemBoxes(settings, self.named, builtin_transports=builtin_transports)

    def run(self) -> Resolved:
        self.named.import_app(self._settings.app)
        self._check_passwords("database", "redis")
        logs = self._boxes.logs()
        return Resolved(
            self._settings,
            self._boxes.delivered(logs),
            self._middlewares(),
            self._error_tracker(),
            Sources(self._settings, self.named, checks=self._source_checks).all(),
            self._jobs(handlers=True),
            logs,
        )

    def _check_passwords(self, *sections: str) -> None:
        """Those who connect load the functions themselves."""
        for section in sections:
            name = getattr(self._settings, section).password_from
            if name is not None:
                self.named.load_callable((section, "password_from"), name, "()")

    def run_for_creating(self) -> Resolved:
        """Without what only a worker calls."""
        self.named.import_app(self._settings.app)
        if self._settings.wakes_by_redis:
            self._check_passwords("redis")
        logs = self._boxes.logs()
        creating = {kind: self._middleware(kind) for kind in ("create_item", "create_batch")}
        return Resolved(
            self._settings,
            self._boxes.created(logs),
            Middlewares(**creating),
            None,
            jobs=self._jobs(handlers=False),
            logs=logs,
        )

    def _jobs(self, *, handlers: bool) -> dict[str, JobPipeline]:
        return JobBoxes(self._settings, self.named).run(handlers=handlers)

    def _middlewares(self) -> Middlewares:
        return Middlewares(**{kind: self._middleware(kind) for kind in MiddlewaresSettings.model_fields})

    def _middleware(self, kind: str) -> tuple[Middleware, ...]:
        shape = "(model, attributes, call_next)" if kind.startswith("create") else "(subject, call_next)"
        paths: tuple[str, ...] = getattr(self._settings.middlewares, kind)
        awaited = not kind.startswith("create")
        made = [
            self.named.load_callable(("middlewares", kind, position), path, shape, awaited=awaited)
            for position, path in enumerate(paths)
        ]
        return tuple(middleware for middleware in made if middleware is not None)

    def _error_tracker(self) -> ErrorTracker | None:
        path = self._settings.error_tracker
        return (
            None
            if path is None
            else self.named.load_callable(("error_tracker",), path, "(error_or_message, **context)")
        )
