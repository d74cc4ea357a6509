"""The partitions of a log over an empty database."""

from __future__ import annotations

from boxengine.adapters.sql.log.partitions import Partitions, partitions_of
from tests.eventually import eventually
from tests.integration.log.bench import Bench


def partitions(bench: Bench) -> Partitions:
    with bench.engine.connect() as connection:
        found = partitions_of(connection, "order_items_log")
    assert found is not None
    return found


def close(bench: Bench, *, wait: bool = True) -> str:
    """Ends the present partition: the next transaction writes into another one. Returns its name.

    Args:
        wait: until all transactions that can write into it have ended; other tests have some on the same server.
    """
    present = partitions(bench)
    (part,) = (each for each in present.ranges if each.low <= present.current < each.high)
    # Beyond every transaction that has begun: a snapshot ends with the first that was under way when the last one ended.
    ((began,),) = bench.ask("SELECT pg_current_xact_id()::text::bigint")
    high = int(str(began)) + 2
    bench.run(f"ALTER TABLE order_items_log DETACH PARTITION {part.name}")
    bench.run(f"ALTER TABLE order_items_log ATTACH PARTITION {part.name} FOR VALUES FROM ('{part.low}') TO ('{high}')")
    bench.run(
        f"CREATE TABLE order_items_log_p{high:x} PARTITION OF order_items_log FOR VALUES FROM ('{high}') TO ('{part.high}')"
    )
    eventually(lambda: bench.ask(f"SELECT '{high}'::xid8 <= pg_current_xact_id()") == [(True,)])
    if wait:
        eventually(lambda: part.name in {each.name for each in partitions(bench).closed})
    return part.name
