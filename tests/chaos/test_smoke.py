"""Two faults of the chaos suite, on a small scale; ``make chaos`` plays all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.chaos.catalogue import FAULTS
from tests.chaos.play import Plan, play
from tests.chaos.snapshot import copy_of_the_code
from tests.chaos.stage import Servers


@pytest.mark.parametrize("name", ["sigkill-worker", "postgres-immediate"])
def test_nothing_is_lost_and_nothing_reordered(
    name: str, tmp_path: Path, own_postgres: EmbeddedPostgres, own_redis: EmbeddedValkey
) -> None:
    servers = Servers(own_postgres, own_redis, copy_of_the_code(tmp_path / "code"))
    plan = Plan(items=2_000, rate=1_000.0, seed=1, most_times=1)
    row = play(name, FAULTS[name], servers, tmp_path / "stage", plan)
    assert (row.times, row.items >= 2_000) == (1, True)
    assert (row.lost, row.reordered) == (0, 0), row.problems
