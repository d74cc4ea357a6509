"""Passwords that may change while a process runs: where they come from, and what is wrong with that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from boxengine.settings.diagnosis import Finding
from boxengine.settings.schema import DatabaseSettings, RedisSettings, Settings
from boxengine.settings.values.places import has_password


def read(file: str) -> str:
    """The password that the file holds.

    Raises:
        ValueError: it holds none; the message says why, and does not quote it.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not text in UTF-8") from None  # the error holds the whole of it
    password = text.rstrip("\n")
    if not password:
        raise ValueError(f"{file} is empty; expected the password")
    return password


def check(settings: Settings) -> Iterator[Finding]:
    """Contradictions between the keys."""
    redis, url = settings.redis, settings.database.url
    yield from _one_place("database", settings.database, taken="url" if has_password(url or "") else None)
    if redis.sentinels:
        taken = "password" if redis.password else None
    else:
        address = urlsplit(redis.url)
        taken = "url" if address.password or "password" in parse_qs(address.query) else None
    yield from _one_place("redis", redis, taken=taken)


def check_files(settings: Settings) -> Iterator[Finding]:
    """Files without a password: a worker that starts would wait for one, perhaps for ever."""
    for section, chosen in (("database", settings.database.password_file), ("redis", settings.redis.password_file)):
        if chosen is not None:
            try:
                read(chosen)
            except ValueError as error:
                yield Finding((section, "password_file"), str(error))


def _one_place(section: str, chosen: DatabaseSettings | RedisSettings, *, taken: str | None) -> Iterator[Finding]:
    """Args:
    taken: the key that holds a password already.
    """
    given = [key for key in ("password_file", "password_from") if getattr(chosen, key) is not None]
    if len(given) > 1:
        message = "contradicts password_file; expected one of the two"
        yield Finding((section, "password_from"), message, involves=frozenset({(section, "password_file")}))
    elif given and taken is not None:
        message = f"contradicts the password in {section}.{taken}; take that one out"
        yield Finding((section, given[0]), message, involves=frozenset({(section, taken)}))
