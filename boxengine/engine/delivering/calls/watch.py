"""What a transport's calls are reported to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from boxengine.domain.box import Box
from boxengine.ports import Observer, Tracer


@dataclass(frozen=True, slots=True)
class Watch:
    """Given to every object that calls transports."""

    box: Box
    observer: Observer
    tracer: Tracer
    monotonic: Callable[[], float]
