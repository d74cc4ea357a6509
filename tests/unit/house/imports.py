"""Who imports whom in a package, read from its source: also inside functions and where only a type checker looks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

Imports = Mapping[str, frozenset[str]]


def modules(package: Path) -> dict[str, Path]:
    """By dotted name, all modules below the package's folder."""
    found = {}
    for file in package.rglob("*.py"):
        parts = list(file.relative_to(package.parent).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(package: Path) -> Imports:
    """By module, the modules of the same package that it imports, wherever in its source."""
    files = modules(package)
    return {
        name: frozenset(_named(ast.parse(file.read_text()), files)) - {name} for name, file in sorted(files.items())
    }


def circles(graph: Imports) -> list[list[str]]:
    """Each group of modules that import one another in a circle, as one circle that goes through its first module."""
    found = []
    reached = {start: _reached(graph, start) for start in graph}
    seen: set[str] = set()
    for start in graph:
        if start in reached[start] and start not in seen:
            seen |= {other for other in reached[start] if start in reached[other]}
            found.append(_way(graph, start))
    return found


def _named(tree: ast.AST, files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module in files:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in files else node.module


def _reached(graph: Imports, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += graph[name]
    return reached


def _way(graph: Imports, start: str) -> list[str]:
    """The shortest way from a module back to itself."""
    ways = [[start]]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for name in sorted(graph[way[-1]]):
            if name == start:
                return [*way, start]
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    raise AssertionError(f"{start} is in no circle")
