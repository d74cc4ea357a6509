"""Statements as files that can be read, and compared whatever their line breaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import sqlparse  # which Django brings

FOLDER = Path(__file__).parent / "golden"
REWRITE = "BOXENGINE_REWRITE_SQL"
"""Environment variable: the files are written anew in place of being compared."""


def rendered(sections: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """A file's text."""
    parts = []
    for side, statements in sections.items():
        for name, texts in statements.items():
            shown = "\n".join(f"{_laid_out(text)};" for text in texts)
            parts.append(f"-- {side}: {name}\n{shown}\n")
    return "\n".join(parts)


def _laid_out(text: str) -> str:
    if not text.lstrip("(").startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")):
        # SQLAlchemy lays out tables itself, and the rest is short.
        return "\n".join(line.rstrip() for line in text.expandtabs(4).strip().splitlines())
    return str(sqlparse.format(text, reindent=True)).strip()


def by_statement(text: str) -> dict[str, str]:
    """By heading, the statements below it without any white space, which is the formatter's business."""
    found: dict[str, str] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("-- "):
            heading = line
        found[heading] = found.get(heading, "") + "".join(line.split())
    return found
