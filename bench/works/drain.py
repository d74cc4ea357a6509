"""Draining a backlog into transports that do nothing: a whole worker against the floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.floors.drain import PAYLOAD, UNBARRED, against, floors
from bench.report import Bar, Line, at_least, ratio_line
from bench.rounds import alternate, compare
from bench.servers import Stand
from bench.transports import Batches, Singles
from bench.worker import warm_worker

_BATCHES: dict[str, dict[str, str]] = {"bench.transports.Batches": {}}


def few_buckets(stand: Stand) -> list[Line]:
    """16 buckets, the default."""
    return _batches(stand, buckets=16)


def many_buckets(stand: Stand) -> list[Line]:
    """256 buckets, as in production."""
    return _batches(stand, buckets=256)


def _batches(stand: Stand, *, buckets: int) -> list[Line]:
    count = stand.scale.pick(50_000, 20_000)
    with stand.site(buckets=buckets, transport=_BATCHES) as site, warm_worker(site) as worker:
        table = site.table()

        def ours() -> float:
            table.fill(count)
            return worker.drain_rate(count)

        programs = against(ours, floors(table, Batches().call_batch, count))
        figures = alternate(programs, rounds=stand.scale.rounds)
    work = f"drain {count:,}, batch transport, {buckets} buckets"
    return _lines(work, figures, at_least(0.90))


def _lines(work: str, figures: Mapping[str, Sequence[float]], bar: Bar) -> list[Line]:
    """The ratio to the floor, and for information the ratio to the floor that takes larger batches."""
    larger = {name: figures[name] for name in ("boxengine", UNBARRED)}
    return [
        ratio_line(work, compare(figures, ours="boxengine", without=UNBARRED), bar),
        ratio_line(f"{work}: against batches of 500", compare(larger, ours="boxengine"), None),
    ]


def one_by_one(stand: Stand) -> list[Line]:
    """A transport for single items inside one item middleware; the floor has no middleware."""
    count = stand.scale.pick(50_000, 20_000)
    single = Singles()

    def send(rows: Sequence[Any]) -> None:
        for row in rows:
            single(row, row[PAYLOAD])

    around = {"item_process": ["bench.transports.Around"]}
    with (
        stand.site(buckets=256, transport={"bench.transports.Singles": {}}, middlewares=around) as site,
        warm_worker(site) as worker,
    ):
        table = site.table()

        def ours() -> float:
            table.fill(count)
            return worker.drain_rate(count)

        figures = alternate(against(ours, floors(table, send, count)), rounds=stand.scale.rounds)
    work = f"drain {count:,} one by one, one item middleware"
    return _lines(work, figures, at_least(0.75))


def hot_key(stand: Stand) -> list[Line]:
    """All items have one key, and so one bucket: only one thread can work."""
    count = stand.scale.pick(50_000, 20_000)
    with stand.site(buckets=256, transport=_BATCHES) as site, warm_worker(site) as worker:
        table = site.table()

        def fill() -> None:
            table.fill(count, hot=True)

        def ours() -> float:
            fill()
            return worker.drain_rate(count)

        programs = floors(table, Batches().call_batch, count, fill=fill, threads=1)
        figures = alternate(against(ours, programs), rounds=stand.scale.rounds)
    work = f"hot key: drain {count:,} of one key"
    return _lines(work, figures, at_least(0.70))


def deletion(stand: Stand) -> list[Line]:
    """Deleting on delivery against marking as delivered, both with boxengine."""
    count = stand.scale.pick(200_000, 50_000)
    deleting = {"retention_delivered_items": "PT0S", "delivered_min_retention_period": "PT0S"}
    with (
        stand.site(buckets=256, transport=_BATCHES) as marking_site,
        stand.site(buckets=256, transport=_BATCHES, box_options=deleting) as deleting_site,
        warm_worker(marking_site) as marker,
        warm_worker(deleting_site) as deleter,
    ):

        def marking() -> float:
            marking_site.table().fill(count)
            return marker.drain_rate(count)

        def delete() -> float:
            deleting_site.table().fill(count)
            return deleter.drain_rate(count)

        figures = alternate({"marking": marking, "deleting": delete}, rounds=stand.scale.rounds)
    return [ratio_line("delete on delivery against marking", compare(figures, ours="deleting"), at_least(1.4))]
