"""Refuses two boxes that name the same table differently: only the database knows that ``t`` is ``public.t``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import combinations

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.domain.box import Box
from boxengine.errors import ConfigurationError, SchemaMismatch, StoreConflict
from boxengine.settings import Resolved
from boxengine.settings.loading import problems_of
from boxengine.settings.rules import boxes_with_paths, table_taken


def refuse_shared_tables(resolved: Resolved, store: SqlStore) -> None:
    """Asks the database about boxes whose table names end in the same part, if there are any.

    Raises:
        ConfigurationError: two boxes use the same table.
        StoreUnavailable: the database does not answer, so this cannot be checked; it is asked only if names are alike.
    """
    paths = {name: path for path, name, _ in boxes_with_paths(resolved.settings)}
    found = [
        table_taken(paths[second.name], second.table, paths[first.name])
        for first, second in _alike([pipeline.box for pipeline in resolved.pipelines.values()])
        if _is_same(first, second, store)
    ]
    if found:
        raise ConfigurationError(problems_of(found, resolved.settings.origin))


def _alike(boxes: Sequence[Box]) -> Iterator[tuple[Box, Box]]:
    for first, second in combinations(boxes, 2):
        if _last_name(first) == _last_name(second):
            yield first, second


def _last_name(box: Box) -> str:
    # MySQL table names may be case-insensitive.
    return box.table.rpartition(".")[2].lower()


def _is_same(first: Box, second: Box, store: SqlStore) -> bool:
    # A missing table is not shared. One that somebody has locked must not keep the other boxes from starting.
    with suppress(SchemaMismatch, StoreConflict):
        locations = [store.table(first).location, store.table(second).location]
        if store.engine.dialect.name != "postgresql":
            locations = [location.lower() for location in locations]
        return locations[0] == locations[1]
    return False
