"""Lets a worker go on by itself where a log has come to another server."""

from __future__ import annotations

import logging

from sqlalchemy import Connection, Engine, text

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.log.foreign import REASON, has_rows_ahead, refuse_arrivals, reposition
from boxengine.adapters.sql.log.tables import doubled_positions, reflect_log
from boxengine.adapters.sql.shape.tables import reflect
from boxengine.domain.box import Box, Storage

logger = logging.getLogger(__name__)


class GoingOn:
    """What one process knows of its logs: whether their numbers are this server's.

    Each claim compares its positions with the server. What no position tells is looked for at a box's first claim, and again once
    the server has been started anew: no count of transactions goes back while it runs.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sure: set[str] = set()
        """Names of boxes that need no look."""
        self._looked: dict[str, object] = {}
        """By box: the start of the server on which rows ahead of its count were looked for."""

    def look(self, box: Box) -> None:
        """Before a claim.

        Raises:
            StoreUnavailable: as ``go_on``.
        """
        if box.storage is Storage.TABLE or box.name in self._sure:
            return
        with translated(self._engine), self._engine.connect() as connection:
            started = connection.execute(text("SELECT pg_postmaster_start_time()")).scalar()
            astray = self._looked.get(box.name) != started and self._is_astray(connection, box)
        if astray:
            self.go_on(box)
        self._looked[box.name] = started
        self._sure.add(box.name)

    @staticmethod
    def _is_astray(connection: Connection, box: Box) -> bool:
        found = reflect_log(connection, reflect(connection, box))
        refuse_arrivals(connection, box, found)
        return has_rows_ahead(connection, found) or doubled_positions(connection, found) > 0

    def unsure(self) -> None:
        """The database did not answer: another may answer next, for every box."""
        self._sure.clear()

    def go_on(self, box: Box) -> None:
        """Brings the positions to this server's numbers, and says so; does nothing where another worker has.

        Raises:
            ForeignPositions: it would not be safe; the message says what a person has to do.
            StoreConflict: writers did not end their transactions in time.
        """
        aside = reposition(self._engine, box)
        if aside is not None:
            logger.warning(
                "box %s: %s: it goes on by created time and id, with %d items that may not have been delivered",
                box.name,
                REASON,
                aside,
            )
