"""Types of single values: what may stand in the file, what becomes of it, and how an editor's schema says so.

Every parser takes text as well as the type itself, since ``${NAME}`` always yields text. Messages begin with
``expected``; who reports them adds what was found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from boxengine.domain.box import Beginning, Storage, StrictOrder
from boxengine.domain.cron import Cron
from boxengine.domain.jobs import Executor
from boxengine.domain.schedules import Misfire
from boxengine.settings import durations

CUT = object()
"""Stands in a list for an entry that was wrong and is left out, so that the others keep their positions in messages."""

_FROM_ENVIRONMENT = {"type": "string", "pattern": r"\$\{"}
_WHOLE = re.compile(r"[+-]?\d+(_\d+)*")
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_STRICT_ORDER = {
    "true": StrictOrder.BUCKET,
    "false": StrictOrder.NONE,
    "bucket": StrictOrder.BUCKET,
    "key": StrictOrder.KEY,
    "none": StrictOrder.NONE,
}
_DATABASE_URL = re.compile(r"[a-z][a-z0-9_]*(\+[a-z0-9_]+)?://.*", re.DOTALL)
_REDIS_URL = re.compile(r"(redis|rediss|unix)://.*", re.DOTALL)
_HOST_AND_PORT = re.compile(r"([^\s:]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")


def _whole(minimum: int, maximum: int | None = None) -> Callable[[object], int]:
    expected = f"expected a whole number from {minimum} " + ("up" if maximum is None else f"to {maximum}")

    def parse(value: object) -> int:
        if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise ValueError(expected)
        if maximum is not None and value > maximum:
            raise ValueError(expected)
        return value

    return parse


def _acks(value: object) -> int:
    return -1 if value == "all" else _whole(-1)(value)


def _decimal(minimum: float, maximum: float = math.inf) -> Callable[[object], float]:
    expected = f"expected a number from {minimum:g} " + ("up" if maximum == math.inf else f"to {maximum:g}")

    def parse(value: object) -> float:
        number = _number(value)
        if number is None or not minimum <= number <= maximum:
            raise ValueError(expected)
        return number

    return parse


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise ValueError("expected true or false")


def lowered(value: object) -> object:
    """For words that people write in capitals as well."""
    return value.lower() if isinstance(value, str) else value


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError("expected text" if isinstance(value, str | Mapping | list) else "expected text (put it in quotes)")


def _duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        try:
            return durations.parse(value)
        except ValueError:
            pass
    raise ValueError("expected an ISO 8601 duration such as P1W, P1D, PT6H or PT0.5S")


def _seconds(*, zero: bool) -> Callable[[object], timedelta]:
    least = "expected seconds (0 or more)" if zero else "expected seconds (more than 0)"

    def parse(value: object) -> timedelta:
        length = _length(value)
        if length is None or length < timedelta(0) or not (zero or length):
            raise ValueError(f"{least}, or an ISO 8601 duration such as PT10S")
        return length

    return parse


def _seconds_or_off(value: object) -> timedelta | None:
    if value is None or value is False or (isinstance(value, str) and value.lower() in _FALSE - {"0"}):
        return None
    try:
        return _seconds(zero=False)(value)
    except ValueError as error:
        raise ValueError(f"{error}; or off") from error


def _length(value: object) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    number = _number(value)
    try:
        if number is not None:
            return timedelta(seconds=number)
        return durations.parse(value) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def _seconds_out(length: timedelta) -> int | float:
    seconds = length.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def _seconds_or_off_out(length: timedelta | None) -> int | float | bool:
    return False if length is None else _seconds_out(length)


def _strict_order(value: object) -> StrictOrder:
    if isinstance(value, StrictOrder):
        return value
    found = _STRICT_ORDER.get(str(value).lower()) if isinstance(value, bool | str) else None
    if found is None:
        raise ValueError("expected true, false, bucket or key")
    return found


def _storage(value: object) -> Storage:
    try:
        return Storage(str(value))
    except ValueError:
        raise ValueError("expected table or log") from None


def _beginning(value: object) -> Beginning:
    try:
        return Beginning(str(value))
    except ValueError:
        raise ValueError("expected beginning or now") from None


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else _without_cuts(value)


def _without_cuts(value: object) -> object:
    return [entry for entry in value if entry is not CUT] if isinstance(value, list) else value


def _comma_separated(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else _without_cuts(value)


def _database_url(value: object) -> str:
    text = _text(value)
    if text.startswith("postgres://"):
        raise ValueError("expected a SQLAlchemy URL: write postgresql+psycopg:// where others write postgres://")
    if not _DATABASE_URL.fullmatch(text):
        raise ValueError("expected a SQLAlchemy URL such as postgresql+psycopg://user:password@host:5432/name")
    credentials, _, _ = text.partition("?")[0].partition("://")[2].rpartition("@")
    if "@" in credentials:
        # The driver would take what follows the first one for the host, and say so in its errors.
        raise ValueError("expected %40 where the password has an @")
    return text


def _redis_url(value: object) -> str:
    text = _text(value)
    if not _REDIS_URL.fullmatch(text):
        raise ValueError("expected a URL that begins with redis://, rediss:// or unix://")
    try:
        urlsplit(text).port  # noqa: B018 - reading it is what checks it
    except ValueError:
        # Its message would quote what was taken for the port.
        raise ValueError("expected %2F %3F %23 %40 where the password has / ? # @, and a number for the port") from None
    return text


def _host_and_port(value: object) -> str:
    text = _text(value)
    if not _HOST_AND_PORT.fullmatch(text):
        raise ValueError("expected host:port")
    return text


def _dead_letter(value: object) -> dict[str, str]:
    match value:
        case {"box": str(place), **rest} if place and not rest:
            return {"box": place}
        case {"topic": str(place), **rest} if place and not rest:
            return {"topic": place}
        case _:
            raise ValueError("expected box: NAME or topic: NAME")


def _hidden(value: object) -> dict[str, tuple[str, ...] | None]:
    if not isinstance(value, Mapping):
        raise ValueError("expected box names, each with true or a list of key paths")  # noqa: TRY004 - pydantic's way
    return {str(box): _hidden_of(box, rule) for box, rule in value.items() if rule is not False}


def _hidden_of(box: object, rule: object) -> tuple[str, ...] | None:
    match rule:
        case True | None:
            return None
        case str():
            return (rule,)
        case list() | tuple() if all(isinstance(path, str) and path for path in rule):
            return tuple(rule)
        case _:
            raise ValueError(f"expected true or a list of key paths for {box}")


def _cron(value: object) -> Cron:
    if isinstance(value, Cron):
        return value
    return Cron.parse(_text(value))


def _zone(value: object) -> str:
    name = _text(value)
    if name != "UTC":
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                "expected a time zone such as Europe/Berlin; where the machine has no time zone data, install tzdata"
            ) from None
    return name


def _misfire(value: object) -> Misfire:
    try:
        return Misfire(str(value))
    except ValueError:
        raise ValueError(f"expected {', '.join(Misfire)}") from None


def _executor(value: object) -> Executor:
    try:
        return Executor(str(value))
    except ValueError:
        raise ValueError(f"expected {' or '.join(Executor)}") from None


def _servers(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(_text(server) for server in value if server is not CUT)
    return _text(value)


def _schema(**keywords: Any) -> WithJsonSchema:
    """A JSON Schema that an editor may hold against the file, where ``${NAME}`` can stand for any type."""
    return WithJsonSchema({"anyOf": [keywords, _FROM_ENVIRONMENT]})


_SECONDS_SCHEMA = WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]})

Count = Annotated[int, BeforeValidator(_whole(1)), _schema(type="integer", minimum=1)]
CountOrZero = Annotated[int, BeforeValidator(_whole(0)), _schema(type="integer", minimum=0)]
Acks = Annotated[int, BeforeValidator(_acks), _schema(anyOf=[{"type": "integer", "minimum": -1}, {"const": "all"}])]
Port = Annotated[int, BeforeValidator(_whole(0, 65535)), _schema(type="integer", minimum=0, maximum=65535)]
Factor = Annotated[float, BeforeValidator(_decimal(1)), _schema(type="number", minimum=1)]
Share = Annotated[float, BeforeValidator(_decimal(0, 1)), _schema(type="number", minimum=0, maximum=1)]
Flag = Annotated[bool, BeforeValidator(_flag), _schema(type="boolean")]
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": "string", "minLength": 1})]
DottedPaths = Annotated[
    tuple[Text, ...],
    BeforeValidator(_one_or_more),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
HostNames = Annotated[
    tuple[Text, ...],
    BeforeValidator(_comma_separated),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""A list, or text with commas."""
Hidden = Annotated[
    Mapping[str, tuple[str, ...] | None],
    BeforeValidator(_hidden),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": "boolean"}, {"type": "string"}, {"type": "array", "items": {"type": "string"}}]
            },
        }
    ),
]
"""By box: None for the whole payload, else the key paths."""
DatabaseUrl = Annotated[str, BeforeValidator(_database_url), WithJsonSchema({"type": "string"})]
RedisUrl = Annotated[str, BeforeValidator(_redis_url), WithJsonSchema({"type": "string"})]
HostsAndPorts = Annotated[
    tuple[Annotated[str, BeforeValidator(_host_and_port)], ...],
    BeforeValidator(_comma_separated),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""A list, or text with commas, since an environment variable has no lists."""
Servers = Annotated[
    str,
    BeforeValidator(_servers),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
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
Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(durations.format_iso, return_type=str, when_used="json"),
    _schema(type="string", pattern="^P"),
]
"""ISO 8601 only."""
Seconds = Annotated[
    timedelta,
    BeforeValidator(_seconds(zero=False)),
    PlainSerializer(_seconds_out, when_used="json"),
    _SECONDS_SCHEMA,
]
"""A plain number is seconds; ISO 8601 works too. More than zero."""
SecondsOrZero = Annotated[
    timedelta,
    BeforeValidator(_seconds(zero=True)),
    PlainSerializer(_seconds_out, when_used="json"),
    _SECONDS_SCHEMA,
]
SecondsOrOff = Annotated[
    timedelta | None,
    BeforeValidator(_seconds_or_off),
    PlainSerializer(_seconds_or_off_out, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}, {"const": False}]}),
]
"""As ``Seconds``; ``off``, which YAML reads as false, is None."""
CronText = Annotated[
    Cron,
    BeforeValidator(_cron),
    PlainSerializer(lambda cron: cron.text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string"}),
]
ZoneName = Annotated[str, BeforeValidator(_zone), WithJsonSchema({"type": "string"})]
MisfireKind = Annotated[
    Misfire,
    BeforeValidator(_misfire),
    WithJsonSchema({"enum": [str(each) for each in Misfire]}),
]
ExecutorKind = Annotated[
    Executor,
    BeforeValidator(_executor),
    WithJsonSchema({"enum": [str(each) for each in Executor]}),
]
StorageKind = Annotated[
    Storage,
    BeforeValidator(_storage),
    WithJsonSchema({"enum": ["table", "log"]}),
]
BeginningKind = Annotated[
    Beginning,
    BeforeValidator(_beginning),
    WithJsonSchema({"enum": [str(each) for each in Beginning]}),
]
Order = Annotated[
    StrictOrder,
    BeforeValidator(_strict_order),
    WithJsonSchema({"enum": [True, False, "bucket", "key"]}),
]
