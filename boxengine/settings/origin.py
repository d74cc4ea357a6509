"""Where each value of the configuration came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

ENVIRONMENT = "environment"
"""Stands for a file where a value comes from an environment variable alone."""
Path = tuple[str | int, ...]
"""Keys and list positions from the top of the configuration to a value."""


@dataclass(frozen=True, slots=True)
class Source:
    """The file a value was read from, and the environment variables its text took values from."""

    file: str
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file} ({', '.join(f'${name}' for name in self.variables)})" if self.variables else self.file


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of every value that was read."""

    sources: Mapping[Path, Source] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def of(self, path: Path) -> Source | None:
        """The source of a value, or of the list that it stands in; None for a default."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.sources:
                # What is missing from a mapping was not read from where the mapping was: it is a default.
                inside_a_list = length == len(path) or isinstance(path[length], int)
                return self.sources[path[:length]] if inside_a_list else None
        return None

    def file(self, path: Path) -> str:
        """The file to name when something is wrong at ``path``, also where the path is a section or is missing."""
        source = self.sources.get(path)
        while source is None and path:
            source = next((source for leaf, source in self.sources.items() if leaf[: len(path)] == path), None)
            path = path[:-1]
        if source is None:
            return ", ".join(self.files)
        return str(source) if source.file == ENVIRONMENT else source.file


def dotted(path: Iterable[str | int]) -> str:
    """``outbox_items.order_outbox_item.transports[0].class``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
