"""Notices changes to the boxes' tables while the worker runs, so that a new column or index is used soon."""

from __future__ import annotations

from datetime import timedelta

from boxengine.engine.running.outages import Outages
from boxengine.errors import StoreUnavailable
from boxengine.ports import Tables

INTERVAL = timedelta(seconds=30)


class TableWatch:
    """Looks at all tables once in each turn."""

    def __init__(self, tables: Tables, *, outages: Outages) -> None:
        self._tables = tables
        self._outages = outages

    def turn(self) -> timedelta:
        """Looks at the tables and returns the pause until the next turn."""
        try:
            self._tables.look_again()
        except StoreUnavailable as error:
            self._outages.failed("looking at tables", error)
        else:
            self._outages.worked("looking at tables")
        return INTERVAL
