"""All faults by name, in the order of the table."""

from __future__ import annotations

from collections.abc import Mapping

from tests.chaos.fault import Fault
from tests.chaos.faults import clocks, network, postgres, redis, versions, workers

FAULTS: Mapping[str, Fault] = {
    **workers.FAULTS,
    **postgres.FAULTS,
    **redis.FAULTS,
    **network.FAULTS,
    **clocks.FAULTS,
    **versions.FAULTS,
}
