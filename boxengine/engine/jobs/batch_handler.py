"""Tells a handler of many jobs from one of a single job. It imports little, because every process reads configurations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BatchHandler:
    """A user's ``handle_batch``: called with a list of ``BatchJob``, returns an answer for each of them in their order."""

    call: Callable[[Any], object]
