"""A changed ``bucket_size`` is refused before anything is delivered by it: only the table knows the one in force."""

from __future__ import annotations

from collections.abc import Collection

from boxengine.adapters.sql.store import SqlStore
from boxengine.errors import ConfigurationError, Problem, SchemaMismatch, StoreConflict, StoreUnavailable
from boxengine.settings import Resolved
from boxengine.settings.origin import dotted
from boxengine.settings.rules import boxes_with_paths


def refuse_other_sizes(resolved: Resolved, names: Collection[str], store: SqlStore) -> None:
    """Asks the tables of the named boxes, or of all, for the size in force.

    A database that does not answer is no reason not to start: the store asks again before each box is worked on.

    Raises:
        ConfigurationError: a box is configured with another size.
    """
    problems = []
    for path, name, _ in boxes_with_paths(resolved.settings):
        if names and name not in names:
            continue
        try:
            table = store.table(resolved.pipelines[name].box)
        except (SchemaMismatch, StoreConflict):  # or somebody has locked it
            continue  # the loops tell
        except StoreUnavailable:
            return
        try:
            table.refuse_another_size()
        except SchemaMismatch as error:
            own = (*path, "bucket_size")
            problems.append(Problem(resolved.settings.origin.file(own), dotted(own), str(error)))
    if problems:
        raise ConfigurationError(problems)
