"""Which characters of a stranger's text may be shown as they are."""

from __future__ import annotations

import unicodedata

_MARKS = frozenset("\u00ad\u200b\u200c\u200d\u200e\u200f\u061c\u2060\ufeff")
"""Invisible characters of ordinary texts: joiners of emoji and of Persian, marks of Arabic and Hebrew, a byte order mark."""


def legible(text: str) -> bool:
    """Whether the text consists of characters that neither steer a terminal nor reorder what stands around them.

    Line ends, tabs, and spaces of every kind are among them, unlike in ``str.isprintable``.
    """
    return text.isprintable() or all(map(is_legible, text))


def is_legible(each: str) -> bool:
    """Whether this one character may be shown as it is."""
    return each.isprintable() or each in "\r\n\t" or each in _MARKS or unicodedata.category(each) == "Zs"


def escaped(text: str) -> str:
    """The text with escapes in place of all other characters: ``\\x1b[31m`` for a colour, ``\\u202e`` for an override."""
    if legible(text):
        return text
    return "".join(each if is_legible(each) else each.encode("unicode_escape").decode() for each in text)
