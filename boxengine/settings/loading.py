"""YAML in, frozen validated settings out; everything that is wrong is found in one go."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from boxengine.errors import ConfigurationError, Problem
from boxengine.settings import files, merge, rules
from boxengine.settings.diagnosis import Finding, findings
from boxengine.settings.job_environment import add_job_defaults
from boxengine.settings.origin import Origin, Path, dotted
from boxengine.settings.rules import Rules
from boxengine.settings.schema import Settings
from boxengine.settings.values.texts import CUT

_DEEPEST = 10
Needed = Callable[[Path, Settings], bool]


@dataclass(frozen=True, slots=True)
class Examination:
    """The settings as far as they are valid, and all that is wrong with the rest."""

    settings: Settings
    problems: tuple[Problem, ...]
    broken: frozenset[Path]
    """Paths of the problems with single values; what else is found there follows from them."""


def load(paths: Sequence[FilePath] | None, *, env: str | None, environ: Mapping[str, str], cwd: FilePath) -> Settings:
    """The configuration, validated.

    Args:
        paths: the files to read, merged in order; None or none: ``$BOXENGINE_CONFIG``, else the usual places.
        env: the environment section; None: ``$BOXENGINE_ENV``, else development.
        environ: the environment variables.
        cwd: the folder that relative paths start from.

    Raises:
        ConfigurationError: with every problem that was found, in all files.
    """
    examination = examine(paths, env=env, environ=environ, cwd=cwd)
    if examination.problems:
        raise ConfigurationError(examination.problems)
    return examination.settings


def examine(
    paths: Sequence[FilePath] | None,
    *,
    env: str | None,
    environ: Mapping[str, str],
    cwd: FilePath,
    rules: Rules = rules.check,
    needed: Needed = lambda _path, _settings: True,
) -> Examination:
    """Like ``load``, but hands over the problems together with what is valid, so that more can be found out.

    Args:
        rules: which contradictions to look for.
        needed: whether the value at a path is needed: an environment variable that only others need may be missing.

    Raises:
        ConfigurationError: there is no configuration file at all.
    """
    env = env or environ.get("BOXENGINE_ENV") or files.DEFAULT_ENVIRONMENT
    documents = [files.read(path, env=env, cwd=cwd) for path in files.find(paths, environ=environ, cwd=cwd)]
    problems = [problem for document in documents for problem in document.problems]
    problems += _missing_environment(documents, env)
    data, sources = merge.merge(documents)
    unset: list[Finding] = []
    found = merge.substitute(data, sources, environ, unset)
    merge.add_defaults(data, sources, environ)
    found += add_job_defaults(data, sources, environ)
    origin = Origin(sources, tuple(document.file for document in documents))

    found += unset
    settings = _validate(data, origin, found)
    broken = frozenset(finding.path for finding in found)
    found += [finding for finding in rules(settings) if not depends_on(finding, broken)]
    excused = [finding for finding in unset if not needed(finding.path, settings)]
    found = [finding for finding in found if finding not in excused]
    problems += problems_of(found, origin)
    return Examination(settings, tuple(dict.fromkeys(problems)), frozenset(finding.path for finding in found))


def problems_of(found: Iterable[Finding], origin: Origin) -> list[Problem]:
    """The findings with the files they are to be mended in."""
    return [Problem(origin.file(finding.path), dotted(finding.path), finding.message) for finding in found]


def depends_on(finding: Finding, broken: frozenset[Path]) -> bool:
    """Whether the finding follows from values that are broken themselves, and so says nothing new."""
    involved = {finding.path, *finding.involves}
    return any(path[: len(part)] == part for path in broken for part in involved)


def _missing_environment(documents: Sequence[files.Document], env: str) -> list[Problem]:
    with_sections = [document for document in documents if document.sections is not None]
    if not with_sections or any(env in (document.sections or ()) for document in with_sections):
        return []
    document = with_sections[0]
    known = ", ".join(document.sections or ())
    message = f"no section for environment {env!r} (--env, $BOXENGINE_ENV); expected one of {known}"
    return [Problem(document.file, "", message)]


def _validate(data: dict[str, Any], origin: Origin, found: list[Finding]) -> Settings:
    """The settings without what is wrong; adds to ``found`` what is.

    What is wrong is cut out and the rest validated again, so that one mistake does not hide another.
    """
    data = _without_all(data, (finding.path for finding in found))
    for passes in itertools.count():
        try:
            return Settings.model_validate(data, context=origin)
        except ValidationError as error:
            latest = findings(error, data)
            cut = [finding.path for finding in found]
            # A section from which a broken value was cut may now lack a required key; that is the same mistake, seen twice.
            found += [f for f in latest if not any(path[: len(f.path)] == f.path for path in cut)]
            # Cutting ends what is wrong within as many passes as keys are nested; should it not, whole sections go.
            narrow = passes < _DEEPEST
            data = _without_all(data, (f.path if narrow else f.path[:1] for f in latest))
    raise AssertionError("unreachable: every pass cuts something")


def _without_all(data: dict[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    for path in paths:
        data = _without(data, path) or {}
    return data


def _without(data: Any, path: Path) -> Any:
    """A copy in which the value at ``path`` is gone; where a required key is missing there, what should have it goes."""
    first, rest = path[0], path[1:]
    if isinstance(data, dict) and first in data:
        inner = _without(data[first], rest) if rest else None
        others = {key: value for key, value in data.items() if key != first}
        return others if inner is None else others | {first: inner}
    if isinstance(data, list) and isinstance(first, int) and first < len(data):
        inner = _without(data[first], rest) if rest else None
        return [*data[:first], CUT if inner is None else inner, *data[first + 1 :]]
    # Further up the path, what should hold the value has been cut out already.
    return data if rest else None
