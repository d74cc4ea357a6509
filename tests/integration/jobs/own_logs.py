"""A module of handlers that sets up logging for itself, as that of an application with a worker inside it."""

from __future__ import annotations

import logging
import sys

from boxengine.adapters.telemetry.tags import TagFilter

_handler = logging.StreamHandler(sys.stderr)
_handler.setFormatter(logging.Formatter("{message} of {box}, {task}, {job}, attempt {attempt}", style="{"))
_handler.addFilter(TagFilter())
_logger = logging.getLogger("shop.own_logs")
_logger.addHandler(_handler)


def say(_job: object) -> None:
    _logger.warning("at work")
