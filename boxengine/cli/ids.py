"""Ids as people type them: ``42``, or ``1,2,3``."""

from __future__ import annotations

from collections.abc import Iterable

import typer

LARGEST = 2**63 - 1
"""The largest id that a column has room for."""


def ids_in(texts: Iterable[str], option: str = "--ids") -> list[int]:
    """The ids in these texts.

    Raises:
        BadParameter: there is something else in them.
    """
    return [_id(part.strip(), text, option) for text in texts for part in text.split(",")]


def _id(part: str, text: str, option: str) -> int:
    if part.isascii() and part.isdecimal() and len(part) <= len(str(LARGEST)) and int(part) <= LARGEST:
        return int(part)
    raise typer.BadParameter(f"expected ids such as 1,2,3, got {text!r}", param_hint=option)
