"""Structured logs: JSON lines for machines, short lines for people, both tagged with box, bucket, item and trace id.

Tags come from the ``extra=`` of a log call, and otherwise from the work that is noted in ``tags``: so a transport's own log
lines name their item, though the transport does nothing for it. Passwords are masked in everything that is logged.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from boxengine.adapters.telemetry.background import BackgroundHandler
from boxengine.adapters.telemetry.tags import STANDARD, TagFilter, safe
from boxengine.domain.item import rfc3339
from boxengine.domain.legible import escaped
from boxengine.domain.masking import masked, masked_text
from boxengine.engine.attempt import text_of

Format = Literal["auto", "json", "text"]
logger = logging.getLogger(__name__)


LONGEST_TEXT = 10_000
"""Characters kept of a message, an error or a tag. Some libraries put a whole request or response into an error's text."""
LONGEST_TRACEBACK = 30_000
DEEPEST = 20
"""Levels shown of a nested tag: one that contains itself would never end."""


class BoxHandler(logging.StreamHandler[TextIO]):
    """The handler that ``configure`` sets for a stream, so that configuring twice does not write twice."""


class ErrorHandler(BackgroundHandler):
    """The handler that ``configure`` sets for standard error."""


def _handler(stream: TextIO | None) -> logging.Handler:
    if stream is not None:
        return BoxHandler(stream)
    try:
        return ErrorHandler(sys.stderr.fileno())
    except (AttributeError, OSError):
        # Replaced by something without a file, as tests and notebooks do, or closed.
        return BoxHandler(sys.stderr)


def configure(
    *,
    format: Format = "auto",  # noqa: A002 - the option's name
    level: int | str = "INFO",
    stream: TextIO | None = None,
    process: bool = False,
) -> logging.Handler:
    """Sends the ``boxengine`` logger tree to ``stream``, in place of what an earlier call set.

    Args:
        format: ``auto``: text where the stream is a terminal, else JSON.
        level: name or number.
        stream: None: standard error.
        process: also handles the lines of all other loggers, so that a transport's own lines are seen and tagged, unless
            the application has given the root logger handlers of its own. The same holds for the logger ``boxengine``.
    """
    handler, shown_on = _handler(stream), stream or sys.stderr
    text = format == "text" or (format == "auto" and shown_on is not None and shown_on.isatty())
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    handler.addFilter(TagFilter())
    handler.addFilter(_is_news)
    root, ours = logging.getLogger(), logging.getLogger("boxengine")
    for each in (root, ours):
        for old in [known for known in each.handlers if isinstance(known, BoxHandler | ErrorHandler)]:
            each.removeHandler(old)
            if isinstance(old, ErrorHandler):
                old.close()
    enable()
    whole = process and not root.handlers
    theirs = process and bool(ours.handlers)
    if whole or not theirs:
        chosen = root if whole else ours
        chosen.addHandler(handler)
        chosen.setLevel(level)
    ours.setLevel(level)
    # Where the application has given our loggers handlers of its own, it reads our lines there, and once.
    ours.propagate = ours.propagate and not whole if theirs else whole
    return handler


def enable() -> None:
    """Lets our loggers speak again: unless told otherwise, ``logging.config`` disables those that it finds, and applications call
    it after ours were made."""
    for name, known in logging.root.manager.loggerDict.copy().items():
        if isinstance(known, logging.Logger) and f"{name}.".startswith("boxengine."):
            known.disabled = False


def in_force() -> tuple[Format, int] | None:
    """What ``configure`` set last: format and level. None: the application has logs of its own."""
    for each in (logging.getLogger(), logging.getLogger("boxengine")):
        for handler in each.handlers:
            if isinstance(handler, BoxHandler | ErrorHandler):
                return "text" if isinstance(handler.formatter, TextFormatter) else "json", each.level
    return None


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line says what no other does.

    psycopg warns of what it ignores while an error is on its way. That error is told by whoever catches it, an outage once; these
    lines would come with each attempt, and the first of them before the cause.
    """
    return not (record.name == "psycopg" and str(record.msg).startswith("error ignored"))


class JsonFormatter(logging.Formatter):
    """One object per line: ``time``, ``level``, ``logger``, ``message``, the tags, ``error`` and ``traceback`` if any."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shown(record.getMessage()),
        }
        # A collector that reads a tag of that name in their place would drop or misplace the line.
        tags = {f"{name}_" if name in fields else name: _tag(name, value) for name, value in _extra(record).items()}
        fields |= tags
        if record.exc_info and record.exc_info[0]:
            fields["error"] = _shown(f"{record.exc_info[0].__name__}: {text_of(record.exc_info[1])}")
            fields["traceback"] = _shown(self.formatException(record.exc_info), LONGEST_TRACEBACK)
        return json.dumps(fields, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """``12:00:01 WARNING item failed: ... box=order_outbox_item item=7``, in local time; a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        tags = "".join(f" {name}={_tag(name, value)}" for name, value in _extra(record).items())
        line = f"{time} {record.levelname:<7} {_shown(record.getMessage())}{masked_text(tags)}"
        if record.exc_info and record.exc_info[0]:
            line += "\n" + _shown(self.formatException(record.exc_info), LONGEST_TRACEBACK)
        # A receiver's words must not steer the terminal on which people read them. Users' own lines may be in colour.
        return escaped(line) if record.name.partition(".")[0] == "boxengine" else line


def _shown(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text, without passwords and cut to ``longest`` characters."""
    # Cut twice: a cut in the middle of a URL might leave part of a password that is not recognised as one.
    known = masked_text(text[: 2 * longest])
    return known if len(known) <= longest else f"{known[:longest]}... (cut, {len(text):,} characters)"


def _tag(name: str, value: object) -> object:
    known = _without_secrets((name,), value)
    if known is None or isinstance(known, bool | int | float):
        return known
    text = known if isinstance(known, str) else str(known)
    return known if len(text) <= LONGEST_TEXT else _shown(text)


def _without_secrets(path: tuple[str | int, ...], value: object) -> object:
    """The value as JSON can hold it, masked all the way down; of what JSON does not know, its text."""
    known = masked(path, value)
    if isinstance(known, float) and not math.isfinite(known):
        return str(known)
    if known is None or isinstance(known, str | bool | int | float):
        return known
    if isinstance(known, Mapping | list | tuple) and len(path) > DEEPEST:
        return "..."
    if isinstance(known, Mapping):
        return {masked_text(str(key)): _without_secrets((*path, str(key)), each) for key, each in known.items()}
    if isinstance(known, list | tuple):
        return [_without_secrets((*path, place), each) for place, each in enumerate(known)]
    return masked_text(text_of(known))


def report(error: BaseException | str, /, **context: Any) -> None:
    """The default error tracker: one line at level error, with the traceback if there is one."""
    tags = {safe(name): value for name, value in context.items()}
    if isinstance(error, BaseException):
        trail = (type(error), error, error.__traceback__)
        logger.error("%s: %s", type(error).__name__, text_of(error), exc_info=trail, extra=tags)
    else:
        logger.error("%s", error, extra=tags)


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in STANDARD and value is not None}
