"""An inbox whose handler writes in the engine's own transaction."""

from __future__ import annotations

from sqlalchemy import create_engine

from bench.floors.inbox import own_buckets
from bench.report import Line, at_least, ratio_line
from bench.rounds import alternate, compare
from bench.servers import INBOX, Stand
from bench.transports import Base, Book
from bench.worker import warm_worker


def inbox(stand: Stand) -> list[Line]:
    """An inbox handler writes one business row per item through session=."""
    count = stand.scale.pick(10_000, 1_000)
    with stand.site(buckets=256, transport={"bench.transports.Book": {}}, outboxes=(), inboxes=(INBOX,)) as site:
        engine = create_engine(site.dsn.replace("postgresql://", "postgresql+psycopg://"))
        Base.metadata.create_all(engine)
        engine.dispose()
        table = site.table(INBOX)
        with warm_worker(site, INBOX) as worker:

            def fill() -> None:
                site.execute("TRUNCATE payments RESTART IDENTITY")
                table.fill(count)

            def floor() -> float:
                fill()
                return own_buckets(table, Book(), count)

            def ours() -> float:
                fill()
                return worker.drain_rate(count)

            figures = alternate({"savepoints by hand": floor, "boxengine": ours}, rounds=stand.scale.rounds)
    work = f"inbox: {count:,} items, one business row each through session="
    return [ratio_line(work, compare(figures, ours="boxengine"), at_least(0.80))]
