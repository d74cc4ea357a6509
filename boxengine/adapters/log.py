"""The transport for first steps and for looking on: every item becomes one line in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from boxengine.adapters.telemetry.background import BackgroundHandler
from boxengine.domain.item import Item
from boxengine.engine.attempt import text_of
from boxengine.errors import BoxError, Unavailable


class LogTransport:
    """Writes each item to a logger of the standard library and counts it as delivered.

    Args:
        level: name of the level, any case.
        logger: name of the logger.
        payload_limit: characters of the payload that are shown; 0 keeps payloads out of the log.
    """

    def __init__(self, *, level: str = "info", logger: str = "boxengine.log", payload_limit: int = 200) -> None:
        self._level = _number_of(level)
        self._logger = logging.getLogger(logger)
        self._payload_limit = payload_limit

    @staticmethod
    def checks(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], object]]]:
        """What shows that an argument is wrong before the transport is made; see ``boxengine.settings.transports``."""
        yield "level", partial(_number_of, arguments.get("level", "info"))

    def __call__(self, item: Item, payload: Any) -> None:
        self._demand_a_reader()
        self._write(item, payload)

    def call_batch(self, items: Sequence[Item]) -> list[None]:
        self._demand_a_reader()
        for item in items:
            self._write(item, item.payload)
        return [None] * len(items)

    def _write(self, item: Item, payload: Any) -> None:
        if not self._logger.isEnabledFor(self._level):
            return
        self._logger.log(
            self._level,
            "%s %d delivered: event_name=%s event_key=%s bucket=%d uuid=%s%s",
            item.box_name,
            item.id,
            item.event_name or "-",
            item.event_key,
            item.bucket,
            item.uuid,
            self._shown(payload),
        )

    def _demand_a_reader(self) -> None:
        """Otherwise lines would be dropped, which here are deliveries."""
        logger: logging.Logger | None = self._logger
        while logger is not None:
            if any(isinstance(handler, BackgroundHandler) and handler.clogged for handler in logger.handlers):
                raise Unavailable("the log cannot be written at the moment, or nobody reads it")
            logger = logger.parent if logger.propagate else None

    def _shown(self, payload: Any) -> str:
        if self._payload_limit <= 0:
            return ""
        if isinstance(payload, bytes):
            payload = payload.decode(errors="backslashreplace")
        text = text_of(payload)
        return f" payload={text[: self._payload_limit]!r}{'...' if len(text) > self._payload_limit else ''}"


def _number_of(level: str) -> int:
    levels = logging.getLevelNamesMapping()
    if level.upper() not in levels:
        raise BoxError(
            f"log transport: level {level!r} is unknown; expected one of {', '.join(name.lower() for name in levels)}"
        )
    return levels[level.upper()]
