"""Refuses a changed ``bucket_size`` or ``storage`` before anything is delivered with it. The table knows what is in force."""

from __future__ import annotations

from collections.abc import Collection

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.errors import ConfigurationError, Problem, SchemaMismatch, StoreConflict, StoreTooSlow, StoreUnavailable
from boxengine.settings import Resolved
from boxengine.settings.origin import dotted
from boxengine.settings.rules import boxes_with_paths


def refuse_other_sizes(resolved: Resolved, names: Collection[str], store: SqlStore) -> None:
    """Compares the configured sizes and storages with those in force in the tables of the named boxes, or of all.

    A database that does not answer does not prevent a start: the store checks again before it works on each box.

    Raises:
        ConfigurationError: a box is configured with another size, or was converted to the other storage.
    """
    problems = []
    wanted = {reader for name in names for reader in resolved.readers(name)}
    chosen = {name: path for path, name, _ in boxes_with_paths(resolved.settings) if not names or name in wanted}
    boxes = [resolved.pipelines[name].box for name in chosen]
    try:
        store.look_up(boxes)
    except (StoreConflict, StoreTooSlow):
        pass  # one of the tables is locked: the others answer by themselves
    except StoreUnavailable:
        return
    for path, box in zip(chosen.values(), boxes, strict=True):
        try:
            table = store.table(box)
        except (SchemaMismatch, StoreConflict):  # or the table is locked
            continue  # the loops report it
        except StoreUnavailable:
            return
        for key, refuse in (("bucket_size", table.refuse_another_size), ("storage", table.refuse_another_storage)):
            try:
                refuse()
            except SchemaMismatch as error:
                own = (*path, key)
                problems.append(Problem(resolved.settings.origin.file(own), dotted(own), str(error)))
    if problems:
        raise ConfigurationError(problems)
