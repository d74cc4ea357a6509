"""The files of the configuration: which they are, and what stands in them before anything is checked against the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from boxengine.errors import ConfigurationError, Problem
from boxengine.settings.origin import dotted
from boxengine.settings.schema import ENVIRONMENTS, Settings

USUAL_PLACES = ("config/outbox.yml", "outbox.yml")
DEFAULT_ENVIRONMENT = "development"
_MERGE_TAG = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class Document:
    """One file as parsed: the part of it that counts in this environment."""

    file: str
    data: Mapping[str, Any]
    problems: tuple[Problem, ...] = ()
    sections: tuple[str, ...] | None = None
    """The environments it has; None for a flat file."""


def find(paths: Sequence[Path] | None, *, environ: Mapping[str, str], cwd: Path) -> list[Path]:
    """The files to read: those given, else ``$BOXENGINE_CONFIG``, else the first of the usual places that is there.

    Raises:
        ConfigurationError: there is none; says where it looked and how to make one.
    """
    if paths:
        return [cwd / path for path in paths]
    named = [part for part in environ.get("BOXENGINE_CONFIG", "").split(":") if part]
    if named:
        return [cwd / part for part in named]
    for place in USUAL_PLACES:
        if (cwd / place).is_file():
            return [cwd / place]
    looked = " and ".join(USUAL_PLACES)
    message = (
        f"no configuration found; looked for {looked} in {cwd}. `boxengine init` makes one; "
        "--config FILE or $BOXENGINE_CONFIG names another"
    )
    raise ConfigurationError([Problem(USUAL_PLACES[0], "", message)])


def read(path: Path, *, env: str, cwd: Path) -> Document:
    """The file's contents for this environment; what is wrong with its form stands in ``problems``."""
    file = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return _refused(file, f"no such file (looked for {path}); `boxengine init` makes a configuration")
    except UnicodeDecodeError as error:
        return _refused(file, f"not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}")
    except OSError as error:
        return _refused(file, f"cannot be read: {error.strerror}")
    return _parse(text, file=file, env=env)


def _refused(file: str, message: str) -> Document:
    return Document(file, {}, (Problem(file, "", message),))


def _parse(text: str, *, file: str, env: str) -> Document:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return Document(file, {})
        form = _Form(file)
        form.check(node)
        if form.unusable:
            return Document(file, {}, tuple(form.problems))
        data = loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return _refused(file, _not_yaml(error, text))
    finally:
        loader.dispose()
    if not isinstance(data, dict):
        return _refused(file, "expected a mapping (key: value) at the top")
    return _in_environment(data, file=file, env=env, problems=form.problems)


def _not_yaml(error: Exception, text: str) -> str:
    hint = "; ERB is not evaluated here, write ${NAME} for the environment" if "<%" in text else ""
    if isinstance(error, RecursionError):
        return f"not YAML: nested too deeply{hint}"
    mark = getattr(error, "problem_mark", None)
    place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"not YAML: {getattr(error, 'problem', None) or error}{place}{hint}"


class _Form:
    """Looks for what YAML lets pass but nobody means: keys that stand twice, keys that are not text, loops of aliases."""

    def __init__(self, file: str) -> None:
        self.problems: list[Problem] = []
        self.unusable = False
        """Whether reading on would only yield mistakes that follow from these."""
        self._file = file
        self._done: set[int] = set()

    def check(self, node: yaml.Node) -> None:
        self._visit(node, (), ())

    def _visit(self, node: yaml.Node, path: tuple[str | int, ...], above: tuple[int, ...]) -> None:
        if id(node) in above:
            self.unusable = True
            self._report(path, "an alias that contains itself")
        if id(node) in self._done:
            return
        self._done.add(id(node))
        inside = (*above, id(node))
        if isinstance(node, yaml.SequenceNode):
            for position, entry in enumerate(node.value):
                self._visit(entry, (*path, position), inside)
        elif isinstance(node, yaml.MappingNode):
            self._visit_mapping(node, path, inside)

    def _visit_mapping(self, node: yaml.MappingNode, path: tuple[str | int, ...], inside: tuple[int, ...]) -> None:
        lines: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == _MERGE_TAG:
                self._visit(value, path, inside)
                continue
            if key.tag != "tag:yaml.org,2002:str":
                self.unusable = True
                self._report(path, f"the key {key.value!r} in line {line} is not text to YAML; put it in quotes")
                continue
            if key.value in lines:
                earlier = lines[key.value]
                self._report((*path, key.value), f"stands twice, in lines {earlier} and {line}; expected once")
            lines.setdefault(key.value, line)
            self._visit(value, (*path, key.value), inside)

    def _report(self, path: tuple[str | int, ...], message: str) -> None:
        self.problems.append(Problem(self._file, dotted(path), message))


def _in_environment(data: dict[str, Any], *, file: str, env: str, problems: Sequence[Problem]) -> Document:
    sections = tuple(key for key, value in data.items() if key not in Settings.model_fields and isinstance(value, dict))
    if not any(key in data for key in ENVIRONMENTS):
        flat = {key: value for key, value in data.items() if not key.startswith("x-")}
        return Document(file, flat, tuple(problems))
    beside = [
        Problem(file, key, "stands beside the environment sections; expected inside one of them")
        for key, value in data.items()
        if key not in ENVIRONMENTS and key not in sections and not key.startswith("x-") and value is not None
    ]
    section = data.get(env)
    if section is not None and not isinstance(section, dict):
        beside.append(Problem(file, env, "expected a mapping (key: value)"))
        section = None
    known = tuple(key for key in data if key in ENVIRONMENTS or (key in sections and not key.startswith("x-")))
    return Document(file, section or {}, (*problems, *beside), known)
