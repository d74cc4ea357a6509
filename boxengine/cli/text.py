"""Plain text for a terminal, without the library that draws tables, which is slow to import."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence


def printable(text: str, *, lines: bool = False) -> str:
    """The text with unprintable characters escaped; with ``lines``, line ends and tabs stay as they are."""
    kept = "\n\t" if lines else ""
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode() for each in text
    )


def aligned(rows: Sequence[Sequence[str]], *, right: Sequence[bool]) -> list[str]:
    """The rows as lines, with columns two spaces apart; ``right`` tells which columns are right-aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(right))]
    return [
        "  ".join(
            cell.rjust(width) if at_right else cell.ljust(width)
            for cell, width, at_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def wrapped(line: str, width: int) -> str:
    """The line in lines of at most this width unless a word is longer; those that follow the first are indented."""
    return textwrap.fill(line, max(20, width), subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
