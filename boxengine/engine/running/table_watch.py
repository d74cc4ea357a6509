"""Notices that boxes' tables were changed while the worker runs: what an added column or index offers is used soon."""

from __future__ import annotations

from datetime import timedelta

from boxengine.engine.running.outages import Outages
from boxengine.errors import StoreUnavailable
from boxengine.ports import Tables

INTERVAL = timedelta(seconds=30)


class TableWatch:
    """One turn is one look at all of them."""

    def __init__(self, tables: Tables, *, outages: Outages) -> None:
        self._tables = tables
        self._outages = outages

    def turn(self) -> timedelta:
        """Looks; returns the pause until the next look."""
        try:
            self._tables.look_again()
        except StoreUnavailable as error:
            self._outages.failed("looking at tables", error)
        else:
            self._outages.worked("looking at tables")
        return INTERVAL
