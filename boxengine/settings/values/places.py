"""Where servers are, and where items go that nobody can read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from boxengine.domain.redis_urls import demand_redis_url
from boxengine.settings.values.texts import CUT, comma_separated, demand_text

_DATABASE_URL = re.compile(r"[a-z][a-z0-9_]*(\+[a-z0-9_]+)?://.*", re.DOTALL)
_PARTS = re.compile(
    r"[^:]+://([^:/]*(?P<password>:[^@]*)?@)?(\[[^/?]+\]|(?P<host>[^/:?]*))(:(?P<port>[^/?]*))?(/(?P<database>[^?]*))?(?P<options>\?.*)?",
    re.DOTALL,
)
"""Of a database URL, as SQLAlchemy tells them apart: a password may have a slash, a ? or a bracket."""
_OPTION = re.compile("[?&](password|passwd|passfile)=")
_LAST_PORT = 65535
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9a-fA-F:.]+\]")
_HOST_AND_PORT = re.compile(r"([^\s:]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")


def database_of(url: str) -> str:
    """The name of the database in a database URL; empty if it has none."""
    parts = _PARTS.fullmatch(url)
    return (parts["database"] or "").strip("/") if parts else ""


def has_password(url: str) -> bool:
    """Whether a database URL holds a password, or an option that says where the driver finds one."""
    parts = _PARTS.fullmatch(url)
    return parts is not None and ((parts["password"] or ":") != ":" or bool(_OPTION.search(parts["options"] or "")))


def _database_url(value: object) -> str:
    # What is put in from a file often ends in a line break.
    text = demand_text(value).strip()
    if text.startswith("postgres://"):
        raise ValueError("expected a SQLAlchemy URL: write postgresql+psycopg:// where others write postgres://")
    if not _DATABASE_URL.fullmatch(text):
        raise ValueError("expected a SQLAlchemy URL such as postgresql+psycopg://user:password@host:5432/name")
    credentials, _, _ = text.partition("?")[0].partition("://")[2].rpartition("@")
    parts = _PARTS.fullmatch(text)
    if "@" in credentials or parts is None or "@" in (parts["host"] or ""):
        # The driver would take what follows the first one for the host, and say so in its errors.
        raise ValueError("expected %40 where the password has an @")
    port = parts["port"]
    if port is not None and not (port.isdecimal() and int(port) <= _LAST_PORT):
        raise ValueError(f"expected a number up to {_LAST_PORT} for the port")
    return text


def _redis_url(value: object) -> str:
    text = demand_text(value).strip()
    demand_redis_url(text)
    return text


def _host_and_port(value: object) -> str:
    text = demand_text(value)
    if not _HOST_AND_PORT.fullmatch(text):
        raise ValueError("expected host:port")
    return text


def _host(value: object) -> str:
    text = demand_text(value).strip()
    if not _HOST.fullmatch(text):
        raise ValueError("expected a name such as console.example, without scheme, port, path or *")
    return text


def _servers(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(demand_text(server) for server in value if server is not CUT)
    return demand_text(value)


def _topics(value: object) -> object:
    # A pattern may have commas of its own.
    return [value] if isinstance(value, str) and value.startswith("^") else comma_separated(value)


def _topic(value: object) -> str:
    text = demand_text(value)
    if not (text.startswith("^") or _TOPIC.fullmatch(text)):
        raise ValueError("expected a topic's name (letters, digits, '.', '_' and '-'), or a pattern that begins with ^")
    return text


def _dead_letter(value: object) -> dict[str, str]:
    match value:
        case {"box": str(place), **rest} if place and not rest:
            return {"box": place}
        case {"topic": str(place), **rest} if place and not rest:
            if not _TOPIC.fullmatch(place):
                raise ValueError("expected letters, digits, '.', '_' and '-' in the topic's name")
            return {"topic": place}
        case _:
            raise ValueError("expected box: NAME or topic: NAME")


_LIST_OR_TEXT = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
HostNames = Annotated[
    tuple[Annotated[str, BeforeValidator(_host)], ...],
    BeforeValidator(comma_separated),
    _LIST_OR_TEXT,
]
"""A list, or text with commas."""
DatabaseUrl = Annotated[str, BeforeValidator(_database_url), WithJsonSchema({"type": "string"})]
RedisUrl = Annotated[str, BeforeValidator(_redis_url), WithJsonSchema({"type": "string"})]
HostsAndPorts = Annotated[
    tuple[Annotated[str, BeforeValidator(_host_and_port)], ...],
    BeforeValidator(comma_separated),
    _LIST_OR_TEXT,
]
"""A list, or text with commas, since an environment variable has no lists."""
Servers = Annotated[
    str,
    BeforeValidator(_servers),
    _LIST_OR_TEXT,
]
Topics = Annotated[
    tuple[Annotated[str, BeforeValidator(_topic)], ...],
    BeforeValidator(_topics),
    _LIST_OR_TEXT,
]
"""A list, or text with commas, likewise."""
DeadLetter = Annotated[
    Mapping[str, str],
    BeforeValidator(_dead_letter),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {"box": {"type": "string"}, "topic": {"type": "string"}},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }
    ),
]
