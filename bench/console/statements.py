"""The statements in PostgreSQL's log, with how long each took as a whole."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

_PHASE = re.compile(
    r".* pid=(\d+) LOG:  duration: ([\d.]+) ms  (statement|parse [^:]*|bind [^:]*|execute [^:]*): (.*)", re.DOTALL
)


def statements_in(log: Path) -> dict[str, list[float]]:
    """By text without numbers and line breaks: the milliseconds of each execution."""
    found: dict[str, list[float]] = defaultdict(list)
    with log.open(errors="replace") as lines:
        for text, milliseconds in executions(lines):
            found[re.sub(r"\d+(, \d+)*", "N", " ".join(text.split()))].append(milliseconds)
    return found


def executions(lines: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Each executed statement, and its milliseconds: those for parsing it, for planning it and for running it together.

    PostgreSQL writes a line for each of these phases, and leaves out what a prepared statement does not need again.
    """
    begun: dict[str, tuple[str, float]] = {}
    for record in _records(lines):
        match = _PHASE.match(record)
        if match is None:
            continue
        pid, phase, text = match[1], match[3], match[4]
        before, spent = begun.pop(pid, (text, 0.0))
        spent = float(match[2]) + (spent if before == text else 0.0)
        if phase.startswith(("parse", "bind")):
            begun[pid] = text, spent
        else:
            yield text, spent


def _records(lines: Iterable[str]) -> Iterator[str]:
    """Lines of the log, each with its further lines, which begin with a tab."""
    record = ""
    for line in chain(lines, ("end",)):
        if line.startswith("\t"):
            record += line
            continue
        if record:
            yield record.rstrip("\n")
        record = line
