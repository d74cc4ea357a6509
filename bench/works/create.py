"""Creating items in the caller's transaction against the same INSERT without boxengine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from sqlalchemy import Engine, Table

from bench.floors import create as floor
from bench.report import Line, at_least, ratio_line
from bench.rounds import alternate, compare
from bench.servers import OUTBOX, Stand
from boxengine import BatchAttributes
from boxengine.adapters.sql.making import schema
from boxengine.app.boxes import Boxes
from boxengine.app.servers.database import connect_store

BUCKETS = 256
TURNS = 20
"""The turns of each program in a round of single items: most of their time is the disk's, whose speed drifts over seconds."""
Program = Callable[[Engine, Table], None]


def one_by_one(stand: Stand) -> list[Line]:
    """Each item in a transaction of its own, the wake-up included, against SQLAlchemy Core."""
    count = stand.scale.pick(2_000, 500)
    share = count // TURNS

    def ours(engine: Engine, boxes: Boxes) -> None:
        for number in range(share):
            with engine.begin() as connection:
                boxes.create_outbox_item(connection, OUTBOX, event_key=number, payload=floor.BODY)

    def core(engine: Engine, table: Table) -> None:
        floor.core_one_by_one(engine, table, share, buckets=BUCKETS)

    turns = _rates(stand, share, ours, {"Core": core}, turns=TURNS)
    starts = range(0, TURNS * stand.scale.rounds, TURNS)
    figures = {
        name: [statistics.harmonic_mean(rates[start : start + TURNS]) for start in starts]
        for name, rates in turns.items()
    }
    return [ratio_line(f"create {count:,} one by one", compare(figures, ours="boxengine"), at_least(0.85))]


def in_batches(stand: Stand) -> list[Line]:
    """A thousand items per transaction, against insertmanyvalues, with COPY for comparison."""
    count = stand.scale.pick(30_000, 10_000)

    def ours(engine: Engine, boxes: Boxes) -> None:
        for batch in floor.batches(count):
            items: list[BatchAttributes] = [{"event_key": number, "payload": floor.BODY} for number in batch]
            with engine.begin() as connection:
                boxes.create_outbox_batch(connection, OUTBOX, items)

    def many_values(engine: Engine, table: Table) -> None:
        floor.insertmanyvalues(engine, table, count, buckets=BUCKETS)

    def copy(engine: Engine, table: Table) -> None:
        floor.copy(engine, table, count, buckets=BUCKETS)

    figures = _rates(stand, count, ours, {"insertmanyvalues": many_values, "COPY": copy})
    work = f"create {count:,} in batches of 1,000"
    against_core = compare({name: figures[name] for name in ("insertmanyvalues", "boxengine")}, ours="boxengine")
    copied = compare({name: figures[name] for name in ("COPY", "boxengine")}, ours="COPY")
    return [
        ratio_line(work, against_core, at_least(0.85)),
        Line(
            work="COPY instead, ids drawn from the sequence first",
            figure=copied.ratio,
            spread=copied.spread,
            details={"COPY items/s": copied.ours, "boxengine items/s": copied.floor},
            note="over 1.5, boxengine should have such a path",
        ),
    ]


def _rates(
    stand: Stand,
    count: int,
    ours: Callable[[Engine, Boxes], None],
    floors: Mapping[str, Program],
    *,
    turns: int = 1,
) -> dict[str, list[float]]:
    """Items per second by program and turn. The table is new, and is emptied before each turn of a round that has several."""
    with stand.site(buckets=BUCKETS, transport={"bench.transports.Batches": {}}) as site:
        store = connect_store(site.boxes.resolved.settings)
        table = schema.tables([site.boxes.box(OUTBOX)])[0]

        def timed(run: Callable[[], None]) -> float:
            if turns == 1:
                site.table().fill(0)
            began = time.perf_counter()
            run()
            return count / (time.perf_counter() - began)

        def program(run: Program) -> Callable[[], float]:
            return lambda: timed(lambda: run(store.engine, table))

        programs = {name: program(run) for name, run in floors.items()}
        try:
            return alternate(
                {**programs, "boxengine": lambda: timed(lambda: ours(store.engine, site.boxes))},
                rounds=turns * stand.scale.rounds,
            )
        finally:
            store.close()
