"""Keeps secrets out of anything printed, logged or stored: values with telling keys, and passwords inside texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MASK = "***"

_SECRET_KEY = re.compile(
    r"passw(?!ord_(?:file|from)$)|passphrase|secret|token|sasl|(?:api|access|private|signing|encryption|hmac)[-_]?key|key[.]pem|credential|"
    r"authorization|cookie|(?:^|[-_.])(?:pwd|auth|dsn)(?:$|[-_.])",
    re.IGNORECASE,
)
_QUERY_KEY = re.compile(r"[?&](?:key|code|(?:[\w-]{1,40}[-_])?sig(?:nature)?)", re.IGNORECASE)
"""What webhooks of Azure, Google and others call their secrets in a URL."""
_SCHEME = re.compile(r"[a-z0-9+.-]{1,30}://", re.IGNORECASE)
_BEARER = re.compile(r"\b(bearer|basic)\s{1,3}[^\s\"',;]{6,}", re.IGNORECASE)
_PAIRS = re.compile(r"([?&;,\s]+)")
_WORDS = re.compile(r"(\s+)")
_END_OF_HOST = re.compile(r"[/?#]")


def is_secret(path: Iterable[str | int]) -> bool:
    """Whether a key on the path to a value marks it as a secret."""
    return any(_SECRET_KEY.search(str(part)) for part in path)


def masked(path: Iterable[str | int], value: Any) -> Any:
    """The value as it may be shown: ``***`` for a secret, texts without their passwords, the rest as it is."""
    if is_secret(path) and value is not None and value != "":
        return MASK
    return masked_text(value) if isinstance(value, str) else value


def masked_text(text: str) -> str:
    """The text with ``***`` for passwords and keys in URLs, for values of ``password=`` and the like, and after ``Bearer``."""
    if "://" in text:
        text = "".join(_without_password(word) for word in _WORDS.split(text))
    if "=" in text:
        parts = _PAIRS.split(text)
        text = "".join(map(_without_value, parts, ["", *parts]))
    return _BEARER.sub(rf"\g<1> {MASK}", text)


def _without_password(word: str) -> str:
    """Masks the URLs in one word. No regular expression runs over the whole word, so that no text is slow."""
    done, position = [], 0
    while scheme := _SCHEME.search(word, position):
        web = scheme[0].lower().startswith("http")
        # In a database URL a password may contain a slash; in a web address a slash begins the path.
        end = _END_OF_HOST.search(word, scheme.end()) if web else None
        authority = word[scheme.end() : end.start() if end else None]
        credentials, at, host = authority.rpartition("@")
        user, colon, _ = credentials.partition(":")
        if at and (colon or web):
            authority = f"{user}:{MASK}@{host}" if colon else f"{MASK}@{host}"
        done += [word[position : scheme.end()], authority]
        position = end.start() if end else len(word)
    return "".join((*done, word[position:]))


def _without_value(pair: str, before: str) -> str:
    key, equals, value = pair.partition("=")
    if equals and value and (_SECRET_KEY.search(key) or _QUERY_KEY.fullmatch(before + key)):
        return f"{key}={MASK}"
    return pair
