"""Keeps secrets out of what is printed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MASK = "***"

_SECRET_KEY = re.compile(r"password|passwd|secret|token|sasl|api_?key|private_?key|credential", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?P<start>[a-z][a-z0-9+.-]*://[^\s:/@?#]*):(?P<password>[^\s/]+)@", re.IGNORECASE)
_QUERY_PASSWORD = re.compile(r"(?P<start>[?&][^=&\s]*(?:password|secret|token)[^=&\s]*=)[^&\s]+", re.IGNORECASE)


def is_secret(path: Iterable[str | int]) -> bool:
    """Whether some key on the way to a value says that it is a secret."""
    return any(_SECRET_KEY.search(str(part)) for part in path)


def masked(path: Iterable[str | int], value: Any) -> Any:
    """The value as it may be shown: ``***`` for a secret, URLs without their passwords, the rest as it is."""
    if value is not None and value != "" and is_secret(path):
        return MASK
    return masked_text(value) if isinstance(value, str) else value


def masked_text(text: str) -> str:
    """The text with passwords in URLs replaced by ``***``."""
    return _QUERY_PASSWORD.sub(rf"\g<start>{MASK}", _URL_PASSWORD.sub(rf"\g<start>:{MASK}@", text))
