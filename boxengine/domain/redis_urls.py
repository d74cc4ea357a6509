"""Checks the address of a Redis before redis-py reads it, because redis-py silently ignores what it does not understand."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_SCHEME = re.compile(r"(redis|rediss|unix)://.*", re.DOTALL)
_DATABASE = re.compile(r"/?\d*/?", re.ASCII)
_OPTIONS = re.compile(r"(\w+=[^&]*(&\w+=[^&]*)*)?", re.ASCII)
_ESCAPES = "expected %2F %3F %23 %40 where the password has / ? # @, and a number for the port"


def demand_redis_url(url: str) -> None:
    """Raises:
    ValueError: redis-py would reach another place than is meant, or none; the message tells nothing of a password.
    """
    if not _SCHEME.fullmatch(url):
        raise ValueError("expected a URL that begins with redis://, rediss:// or unix://")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading it is what checks it
    except ValueError:
        # Its message would quote what was taken for the port.
        raise ValueError(_ESCAPES) from None
    # What stands before the sign may be digits, and so a port.
    if "@" in parts.path or parts.fragment or not _OPTIONS.fullmatch(parts.query):
        raise ValueError(_ESCAPES)
    if parts.scheme != "unix" and not _DATABASE.fullmatch(parts.path):
        # redis-py takes a word for database 0, and /1/2 for database 12.
        raise ValueError("expected a number for the database, such as redis://host:6379/3")
