"""The files of the configuration: which they are, and what stands in them before anything is checked against the schema.

Only PyYAML's safe loader reads them, and what a file may cost is bounded: its bytes, and its values once aliases and merges
are written out, for ten lines of aliases can stand for a billion values.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from boxengine.domain.new_values import UNSTORABLE
from boxengine.errors import ConfigurationError, Problem
from boxengine.settings.origin import dotted
from boxengine.settings.schema import ENVIRONMENTS, Settings

USUAL_PLACES = ("config/outbox.yml", "outbox.yml")
DEFAULT_ENVIRONMENT = "development"
LARGEST_FILE = 1 << 20
"""Bytes."""
MOST_VALUES = 20_000
"""Keys and values of one environment, those that an alias stands for counted each time."""
_TOO_MANY = f"more than {MOST_VALUES:,} values, those that aliases stand for included"
_ALIKE = 0.9
"""From which on a section is a misspelt key: outbox_item is, and databases; no name that environments usually have."""
_MERGE_TAG = "tag:yaml.org,2002:merge"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


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
    raise ConfigurationError([Problem("", "", message)])


def read(path: Path, *, env: str, cwd: Path) -> Document:
    """The file's contents for this environment; what is wrong with its form stands in ``problems``."""
    file = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    try:
        with path.open("rb") as opened:
            content = opened.read(LARGEST_FILE + 1)
        text = content.decode()
    except FileNotFoundError:
        return _refused(file, f"no such file (looked for {path}); `boxengine init` makes a configuration")
    except UnicodeDecodeError as error:
        return _refused(file, f"not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}")
    except OSError as error:
        return _refused(file, f"cannot be read: {error.strerror}")
    if len(content) > LARGEST_FILE:
        return _refused(file, f"larger than {LARGEST_FILE:,} bytes; expected a configuration")
    return _parse(text, file=file, env=env)


def _refused(file: str, message: str) -> Document:
    return Document(file, {}, (Problem(file, "", message),))


def _parse(text: str, *, file: str, env: str) -> Document:
    form = _Form(file)
    try:
        # Within the try, for a character that YAML forbids is found as soon as the loader is made.
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return Document(file, {})
        form.check(node)
        if form.unusable:
            return Document(file, {}, tuple(form.problems))
        data = loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return _refused(file, _TOO_MANY if isinstance(error, _TooManyValues) else _not_yaml(error, text))
    except (AttributeError, LookupError, TypeError):
        # How PyYAML answers a value that its own tag does not fit: !!int "", !!bool maybe.
        return _refused(file, "not YAML: a value does not fit its tag (!!...)")
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


class _TooManyValues(ValueError):
    """The file has more than may be read."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader. It gives up at too many values: a megabyte of them would take seconds and half a gigabyte."""

    _nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._nodes += 1
        # A key is a node too.
        if self._nodes > 2 * MOST_VALUES:
            raise _TooManyValues
        return super().compose_node(parent, index)


class _Form:
    """Looks for what YAML lets pass but nobody means: keys that stand twice or are not text, times of day as numbers, loops of
    aliases."""

    def __init__(self, file: str) -> None:
        self.problems: list[Problem] = []
        self.unusable = False
        """Whether reading on would only yield mistakes that follow from these."""
        self._file = file
        self._open: set[int] = set()
        self._sizes: dict[int, int] = {}

    def check(self, node: yaml.Node) -> None:
        size = self._visit(node, ())
        if isinstance(node, yaml.MappingNode) and any(key.value in ENVIRONMENTS for key, _ in node.value):
            # Of all environments, which may be copies of one, only one is read.
            size = max(self._sizes.get(id(value), 0) for _, value in node.value)
        if size > MOST_VALUES and not self.unusable:
            self.unusable = True
            self._report((), _TOO_MANY)

    def _visit(self, node: yaml.Node, path: tuple[str | int, ...]) -> int:
        """Returns how many values the node is, with all that is in it."""
        if id(node) in self._open:
            self.unusable = True
            self._report(path, "an alias that contains itself")
            return 1
        if id(node) not in self._sizes:
            self._open.add(id(node))
            self._sizes[id(node)] = 1 + self._visit_inside(node, path)
            self._open.remove(id(node))
        return self._sizes[id(node)]

    def _visit_inside(self, node: yaml.Node, path: tuple[str | int, ...]) -> int:
        if isinstance(node, yaml.SequenceNode):
            return sum(self._visit(entry, (*path, position)) for position, entry in enumerate(node.value))
        if isinstance(node, yaml.MappingNode):
            return self._visit_mapping(node, path)
        self._check_text(node.value, path)
        if node.tag in _NUMBERS and ":" in node.value:
            self.unusable = True
            line = node.start_mark.line + 1
            self._report(path, f"{node.value} in line {line} is a number to base 60 to YAML; put it in quotes")
        return 0

    def _visit_mapping(self, node: yaml.MappingNode, path: tuple[str | int, ...]) -> int:
        lines: dict[str, int] = {}
        size = 0
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == _MERGE_TAG:
                size += self._visit(value, path)
                continue
            if key.tag != "tag:yaml.org,2002:str" or not isinstance(key.value, str):
                self.unusable = True
                shown = repr(key.value) if isinstance(key.value, str) else "that begins"
                self._report(path, f"the key {shown} in line {line} is not text to YAML; put it in quotes")
                continue
            if key.value in lines:
                earlier = lines[key.value]
                self._report((*path, key.value), f"stands twice, in lines {earlier} and {line}; expected once")
            lines.setdefault(key.value, line)
            self._check_text(key.value, path)
            size += self._visit(value, (*path, key.value))
        return size

    def _check_text(self, text: str, path: tuple[str | int, ...]) -> None:
        found = UNSTORABLE.search(text)
        if found:
            self.unusable = True
            self._report(path, f"holds the character U+{ord(found[0]):04X}, which is no text")

    def _report(self, path: tuple[str | int, ...], message: str) -> None:
        self.problems.append(Problem(self._file, dotted(path), message))


def _in_environment(data: dict[str, Any], *, file: str, env: str, problems: Sequence[Problem]) -> Document:
    # Keys that begin with x- are for anchors.
    own = {key: value for key, value in data.items() if not key.startswith("x-")}
    if own.keys().isdisjoint(ENVIRONMENTS):
        return Document(file, own, tuple(problems))
    environments = tuple(key for key, value in own.items() if key in ENVIRONMENTS or _is_section(key, value))
    faults = [
        Problem(file, key, "stands beside the environment sections; expected inside one of them")
        for key, value in own.items()
        if key not in environments and value is not None
    ]
    others = (key for key in environments if key not in (*ENVIRONMENTS, env))
    faults += [Problem(file, key, message) for key in others if (message := _misspelt(key)) is not None]
    section = data.get(env)
    if section is not None and not isinstance(section, dict):
        faults.append(Problem(file, env, "expected a mapping (key: value)"))
        section = None
    return Document(file, section or {}, (*problems, *faults), environments)


def _is_section(key: str, value: object) -> bool:
    """Whether it may be the section of an environment with a name of one's own."""
    return key not in Settings.model_fields and isinstance(value, dict)


def _misspelt(section: str) -> str | None:
    near = difflib.get_close_matches(section, Settings.model_fields, n=1, cutoff=_ALIKE)
    if not near:
        return None
    return f"would be an environment; did you mean {near[0]}? expected inside one of the environment sections"
