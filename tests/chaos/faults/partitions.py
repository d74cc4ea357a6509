"""What retention does to the partitions of a log, at a pace that a fault can watch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine, NullPool, create_engine, text

from boxengine.adapters.sql.log.partitions import Partitions, partitions_of
from boxengine.adapters.sql.log.turnover import place_of, turn_over
from boxengine.adapters.sql.shape.tables import reflect
from boxengine.app.boxes import load
from boxengine.domain.box import Box
from tests.chaos.fault import Fault
from tests.chaos.stage import ORDERS, Stage
from tests.eventually import eventually

_BEGUN = 50
"""So many transactions after the present one, another partition takes the rows. It is usually made for an hour or a day."""
_LATER = timedelta(days=1)
"""From now on: everything is old enough."""


def _end(engine: Engine, log: str) -> str:
    """Has the present partition end soon, and another one take what comes then; returns its name."""
    with engine.begin() as connection:
        connection.execute(text(f"LOCK TABLE {log} IN ACCESS EXCLUSIVE MODE"))
        found = _partitions(connection, log)
        (present,) = (each for each in found.ranges if each.low <= found.current < each.high)
        high = found.current + _BEGUN
        for statement in (
            f"ALTER TABLE {log} DETACH PARTITION {present.name}",
            f"ALTER TABLE {log} ATTACH PARTITION {present.name} FOR VALUES FROM ('{present.low}') TO ('{high}')",
            f"CREATE TABLE {log}_p{high:x} PARTITION OF {log} FOR VALUES FROM ('{high}') TO ('{present.high}')",
        ):
            connection.execute(text(statement))
        return present.name


def _partitions(connection: Connection, log: str) -> Partitions:
    found = partitions_of(connection, log)
    if found is None:
        raise AssertionError(f"{log} has no partitions")
    return found


def _turn_over(stage: Stage) -> None:
    """Every log's present partition ends, and goes as soon as it has been passed; a worker is killed meanwhile."""
    stage.crew.wait_until_started()
    stage.wait_for_work()
    boxes = load(stage.folder / "outbox.yml")
    engine = create_engine(stage.servers.database.own_url(stage.database), poolclass=NullPool)
    ended = {name: _end(engine, f"{name}s_log") for name in ORDERS}
    victim = stage.randomness.choice(stage.crew.running)
    with stage.injecting(victim.pid):
        stage.crew.kill(victim)
    stage.crew.hire()
    for name, partition in ended.items():
        _drop(stage, engine, boxes.box(name), partition)
    engine.dispose()


def _drop(stage: Stage, engine: Engine, box: Box, partition: str) -> None:
    log = f"{box.table}_log"

    def now() -> Partitions:
        with engine.connect() as connection:
            return _partitions(connection, log)

    def is_closed() -> bool:
        return partition in {each.name for each in now().closed}

    def is_gone() -> bool:
        turn_over(engine, box, place, created_before=datetime.now(UTC) + _LATER)
        return partition not in {each.name for each in now().ranges}

    eventually(is_closed, what=f"every transaction of {partition} has ended")
    with engine.connect() as connection:
        place = place_of(reflect(connection, box))
        rows = connection.execute(text(f"SELECT id FROM {partition}")).scalars()
        stage.passed.update((box.name, id_) for id_ in rows)
    eventually(is_gone, what=f"{partition} is passed and dropped")


FAULTS = {
    "partitions-dropped": Fault(
        inject=_turn_over, times=10, repeats=True, note="each time a partition of every log, and a worker killed"
    ),
}
