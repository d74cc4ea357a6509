"""Numbers in sentences."""

from __future__ import annotations


def plural(number: int, noun: str) -> str:
    """``1 item``, ``1,204 items``, ``2 boxes``, ``3 pending items``."""
    many = noun + ("es" if noun.endswith("x") else "s")
    return f"{number:,} {noun if number == 1 else many}"
