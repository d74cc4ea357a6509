"""Figures of one box that change slowly: its page shows the last ones, and asks for new ones meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from boxengine.app.servers.connected import Servers
from boxengine.domain.box import Box
from boxengine.errors import BoxError
from boxengine.ports.people.history import Happened, Span
from boxengine.ports.people.inspection import TableState
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
            table, lately = None, Happened()
            with suppress(BoxError):
                table = self._servers.inspector.table(box)
            with suppress(BoxError):
                slots = self._servers.history.read(box.name, Span.HOUR, now=self._servers.clock.now())
                lately = sum((slot.happened for slot in slots), Happened())
            return Figures(table, lately)

        return ask
