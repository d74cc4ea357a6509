"""All faults by name, in the order of the table, for each database."""

from __future__ import annotations

from collections.abc import Mapping

from tests.chaos.fault import Fault
from tests.chaos.faults import (
    clocks,
    handlers,
    mariadb,
    network,
    partitions,
    postgres,
    promotion,
    redis,
    tables,
    versions,
    workers,
)

FAULTS: Mapping[str, Fault] = {
    **workers.FAULTS,
    **postgres.FAULTS,
    **redis.FAULTS,
    **network.between("postgres"),
    **clocks.FAULTS,
    **versions.FAULTS,
    **promotion.FAULTS,
    **tables.FAULTS,
    **handlers.FAULTS,
}
ON_MARIADB: Mapping[str, Fault] = {
    **workers.FAULTS,
    **mariadb.FAULTS,
    **redis.FAULTS,
    **network.between("mariadb"),
    **clocks.FAULTS,
    **versions.FAULTS,
    **tables.ON_MARIADB,
    **handlers.ON_MARIADB,
}
NOT_ON_MARIADB: Mapping[str, str] = {
    "promotion-vip": "a synchronous standby is PostgreSQL's; the worker meets the same as in cut-mariadb",
    "promotion-dns": "the same; of a server that takes no writes any more disk-full tells",
}
"""Faults of PostgreSQL that have no row there, and why."""
ON_PARTITIONS: Mapping[str, Fault] = partitions.FAULTS
"""Faults that only logs with partitions have."""
NOT_ON_A_LOG: Mapping[str, str] = {
    "locked-rows": "an application has no reason to update rows of a log, and nothing pending stands elsewhere",
    "two-versions": "versions before 0.2.0 know no log",
    "ddl": "the side table must be able to take every column of the log, so both are altered together, while no worker runs",
}
"""Faults that do not apply to log boxes, and why."""
