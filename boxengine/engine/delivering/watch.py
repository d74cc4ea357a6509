"""Who is told of each call of a transport."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from boxengine.domain.box import Box
from boxengine.ports import Observer, Tracer


@dataclass(frozen=True, slots=True)
class Watch:
    """Handed to those who call transports."""

    box: Box
    observer: Observer
    tracer: Tracer
    monotonic: Callable[[], float]
