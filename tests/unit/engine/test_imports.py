"""Within the engine no module needs, however far round, another one that needs it."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_no_modules_of_the_engine_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("boxengine", cache_dir=None)
    engine = {module for module in graph.modules if module.startswith("boxengine.engine.")}
    needs = {module: graph.find_modules_directly_imported_by(module) & engine for module in sorted(engine)}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))
