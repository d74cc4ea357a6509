"""Figures of one box that change slowly: its page shows the last ones, and asks for new ones meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from boxengine.app.overview import waiting_in_log
from boxengine.app.servers.connected import Servers
from boxengine.domain.box import Box, Storage
from boxengine.errors import BoxError
from boxengine.ports.people.history import Happened, Span
from boxengine.ports.people.inspection import TableState
from boxengine.ports.people.log import BucketInLog
from boxengine.web.console.live import Live

EVERY = 10.0
"""The least number of seconds until they are asked for again."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a box's page shows besides the look."""

    table: TableState | None
    """None: the database does not tell."""
    lately: Happened
    """What happened in the last hour; nothing if Redis does not tell."""
    in_log: Sequence[BucketInLog] | None
    """What waits in the log, the oldest wait first; None: the box has none, or the database does not tell."""


class AllFigures:
    """Those of all boxes."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._known: dict[str, Live[Figures]] = {}

    def of(self, box: Box) -> Live[Figures]:
        """Those of this box."""
        return self._known.setdefault(box.name, Live(self._asking(box), every=EVERY))

    def _asking(self, box: Box) -> Callable[[], Figures]:
        def ask() -> Figures:
            table, lately, in_log = None, Happened(), None
            with suppress(BoxError):
                table = self._servers.inspector.table(box)
            with suppress(BoxError):
                slots = self._servers.history.read(box.name, Span.HOUR, now=self._servers.clock.now())
                lately = sum((slot.happened for slot in slots), Happened())
            if box.storage is Storage.LOG:
                with suppress(BoxError):
                    in_log = waiting_in_log(self._servers.log, box)
            return Figures(table, lately, in_log)

        return ask
