"""What is known of the boxes' tables: looked up once, and again after somebody has changed one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

from sqlalchemy import Engine

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.delivering.statements import statements_for
from boxengine.adapters.sql.dialects.base import BoxStatements
from boxengine.adapters.sql.dialects.payloads import light
from boxengine.adapters.sql.log.tables import LogTable, names_in, reflect_log
from boxengine.adapters.sql.shape.changes import Shape, shapes
from boxengine.adapters.sql.shape.tables import BoxTable, reflect, reflect_all
from boxengine.domain.box import Box, Storage


class KnownTables:
    """The tables of one database, and the statements made for them. Shared by threads."""

    def __init__(
        self,
        looks: Engine,
        *,
        idle_timeout: timedelta,
        max_batch_bytes: int,
        forgotten: Callable[[Sequence[str]], None],
    ) -> None:
        """Args:
        looks: where tables are looked up.
        idle_timeout: after which the database ends a claim whose worker has fallen silent within it.
        max_batch_bytes: of the payloads of one claim.
        forgotten: called with the names of boxes whose tables have changed.
        """
        self._looks = looks
        self._idle_timeout = idle_timeout
        self._max_batch_bytes = max_batch_bytes
        self._forgotten = forgotten
        self._boxes: dict[str, BoxStatements] = {}
        self._tables: dict[str, BoxTable] = {}
        self._shapes: dict[str, Shape] = {}
        self._lock = threading.Lock()

    def of(self, box: Box) -> BoxTable:
        """What the box's table looks like; looked up once.

        Raises:
            SchemaMismatch: the table is missing or cannot serve as a box.
        """
        known = self._tables.get(box.name)
        if known is None:
            with self._lock, translated(self._looks), self._looks.connect() as connection:
                found = reflect(connection, box)
                unknown = _watched(found) - self._shapes.keys()
                if unknown:
                    # Now, and not at the first look: what has changed by then would never be noticed.
                    self._shapes.update(shapes(connection, unknown))
                known = self._tables.setdefault(box.name, found)
        return known

    def learn(self, boxes: Sequence[Box]) -> None:
        """Looks many tables up at once, as far as they can serve; ``of`` says what is wrong with another."""
        with self._lock, translated(self._looks), self._looks.connect() as connection:
            found = reflect_all(connection, [box for box in boxes if box.name not in self._tables])
            unknown = set[str]().union(*map(_watched, found.values())) - self._shapes.keys()
            if unknown:
                self._shapes.update(shapes(connection, unknown))  # see ``of``
            self._tables.update(found)

    def known(self, box: Box) -> BoxTable | None:
        """The same, if it has been looked up."""
        return self._tables.get(box.name)

    def of_one_size(self, box: Box) -> Box:
        """Returns the box, unless its table is in use with another number of buckets, or its items are stored elsewhere."""
        table = self.of(box)
        table.refuse_another_size()
        table.refuse_another_storage()
        return box

    def statements(self, box: Box) -> BoxStatements:
        known = self._boxes.get(box.name)
        if known is None:
            known = statements_for(
                self._looks.dialect.name,
                self.of(box),
                idle_timeout=self._idle_timeout,
                light=light(self._max_batch_bytes),
                log=self._log(box),
            )
            self._boxes[box.name] = known
        return known

    def look_again(self) -> list[str]:
        """Finds out which tables have changed since the last call; returns the names of their boxes."""
        with self._lock:
            locations = {name: _watched(table) for name, table in self._tables.items()}
        if not locations:
            return []
        with translated(self._looks), self._looks.connect() as connection:
            found = shapes(connection, set().union(*locations.values()))
        changed = [
            name for name, places in locations.items() if any(self._shapes[each] != found[each] for each in places)
        ]
        self._shapes.update(found)
        with self._lock:
            for name in changed:
                self._tables.pop(name, None)
                self._boxes.pop(name, None)
        self._forgotten(changed)
        return changed

    def forget(self, *boxes: Box) -> None:
        """Makes the next statement inspect the table again."""
        with self._lock:
            for box in boxes:
                self._tables.pop(box.name, None)
                self._boxes.pop(box.name, None)
        self._forgotten([box.name for box in boxes])

    def _log(self, box: Box) -> LogTable | None:
        if box.storage is Storage.TABLE:
            return None
        with translated(self._looks), self._looks.connect() as connection:
            return reflect_log(connection, self.of(box))


def _watched(table: BoxTable) -> set[str]:
    """Where the tables are whose changes matter: with ``storage: log`` the log, too, whose columns are copied."""
    if table.box.storage is Storage.TABLE:
        return {table.location}
    place, _, _ = table.location.rpartition(".")
    return {table.location, f"{place}.{names_in(table.box)[0]}"}
