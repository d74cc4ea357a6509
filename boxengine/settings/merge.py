"""Several files made into one configuration, with values from the environment put in, and a note where each came from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from boxengine.settings.diagnosis import Finding
from boxengine.settings.files import Document
from boxengine.settings.origin import ENVIRONMENT, Path, Source

# A default may hold templates such as {event_name}. It ends before the next variable, so that a text of a thousand unclosed
# ones is not read a thousand times.
_VARIABLE = re.compile(
    r"(?P<escaped>\$\$\{)"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?:\{[^{}$]*\}|[^}$]|\$(?!\{))*))?\}"
    r"|(?P<unclear>\$\{)"
)
_UNCLEAR = (
    "a ${ that is not understood; expected ${NAME} or ${NAME:-default}, without another variable in the default, "
    "or $${ for the text ${"
)


def merge(documents: Sequence[Document]) -> tuple[dict[str, Any], dict[Path, Source]]:
    """Mappings are merged key by key, anything else is replaced by what the later file has; and the source of each value."""
    data: dict[str, Any] = {}
    sources: dict[Path, Source] = {}
    for document in documents:
        _merge_into(data, document.data, (), Source(document.file), sources)
    return data, sources


def _merge_into(
    target: dict[str, Any], addition: Mapping[str, Any], path: Path, source: Source, sources: dict[Path, Source]
) -> None:
    for key, value in addition.items():
        here = (*path, key)
        if value is None and target.get(key) is not None:
            # No value, no key: a section whose lines are all comments takes nothing back.
            continue
        if isinstance(value, dict):
            if not isinstance(target.get(key), dict):
                if key in target:
                    _forget(here, sources)
                target[key] = {}
            if not value and not target[key]:
                sources[here] = source
            _merge_into(target[key], value, here, source, sources)
        else:
            if key in target:
                _forget(here, sources)
            target[key] = value
            sources[here] = source


def _forget(path: Path, sources: dict[Path, Source]) -> None:
    for known in [known for known in sources if known[: len(path)] == path]:
        del sources[known]


def substitute(
    data: dict[str, Any], sources: dict[Path, Source], environ: Mapping[str, str], unset: list[Finding]
) -> list[Finding]:
    """Puts the environment's values in for ``${NAME}`` and ``${NAME:-default}`` in all texts, in place.

    The default stands for a variable that is unset or empty, as in a shell. ``$${NAME}`` is the text ``${NAME}``. What else
    begins with ``${`` is wrong: taken for text, a shell's ``${NAME:?needed}`` would become a password.
    Adds to ``unset`` a finding for each variable that is not set and has no default; returns what else is wrong.
    """
    substitution = _Substitution(sources, environ, unset)
    for key, value in data.items():
        data[key] = substitution.apply((key,), value)
    return substitution.found


FROM_THE_ENVIRONMENT: Mapping[tuple[str, str], str] = MappingProxyType(
    {("database", "url"): "DATABASE_URL", ("redis", "url"): "REDIS_URL"}
)
"""Keys that have an environment variable for their default."""


def add_defaults(data: dict[str, Any], sources: dict[Path, Source], environ: Mapping[str, str]) -> None:
    """Puts in what the environment says for keys that no file has, in place."""
    for (section, key), variable in FROM_THE_ENVIRONMENT.items():
        value = environ.get(variable)
        inner = data.get(section)
        inner = {} if inner is None else inner
        # A section that is no mapping is refused later on; Sentinels take the place of a URL.
        if not value or not isinstance(inner, dict) or inner.get(key) is not None or inner.get("sentinels"):
            continue
        data[section] = {**inner, key: value}
        sources.pop((section,), None)
        sources[section, key] = Source(ENVIRONMENT, (variable,))


class _Substitution:
    def __init__(self, sources: dict[Path, Source], environ: Mapping[str, str], unset: list[Finding]) -> None:
        self._sources = sources
        self._environ = environ
        self._unset = unset
        self.found: list[Finding] = []

    def apply(self, path: Path, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.apply((*path, key), entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self.apply((*path, position), entry) for position, entry in enumerate(value)]
        return self._text(path, value) if isinstance(value, str) else value

    def _text(self, path: Path, text: str) -> str:
        if "<%" in text:
            self.found.append(Finding(path, "ERB is not evaluated here; write ${NAME} for the environment"))
        names: list[str] = []
        if any(match["unclear"] for match in _VARIABLE.finditer(text)):
            self.found.append(Finding(path, _UNCLEAR))

        def put_in(match: re.Match[str]) -> str:
            if match["name"] is None:
                return "${"
            name, default = match["name"], match["default"]
            names.append(name)
            # What is put into the environment from a file, such as a secret, often ends in a line break.
            value = self._environ.get(name, "").rstrip("\r\n")
            if default is not None:
                return value or default
            if name not in self._environ:
                message = f"environment variable {name} is not set; set it, or write ${{{name}:-default}}"
                self._unset.append(Finding(path, message))
            return value

        result = _VARIABLE.sub(put_in, text)
        if names:
            self._sources[path] = Source(self._source(path).file, tuple(dict.fromkeys(names)))
        return result

    def _source(self, path: Path) -> Source:
        while path not in self._sources:
            path = path[:-1]
        return self._sources[path]
