"""Numbers in sentences."""

from __future__ import annotations


def plural(number: int, noun: str, *, or_more: bool = False) -> str:
    """``1 item``, ``1,204 items``, ``2 boxes``, ``3 pending items``; with ``or_more``: ``10,000 or more items``."""
    many = noun + ("es" if noun.endswith("x") else "s")
    if or_more:
        return f"{number:,} or more {many}"
    return f"{number:,} {noun if number == 1 else many}"
