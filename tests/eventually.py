"""Waits, for a limited time, for an effect that another process or thread causes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds; how long a machine under load may take, not how fast anything should be."""


def eventually(look: Callable[[], T], *, patience: float = PATIENCE, what: str = "") -> T:
    """What ``look`` returns once it is true; fails if that does not happen within the patience."""
    pause = threading.Event()
    until = time.monotonic() + patience
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"did not happen within {patience:.0f} s: {what or look}; last answer {found!r}")
        pause.wait(0.02)
