"""Several processes over one box, started as users start them."""

from __future__ import annotations

import statistics
import time

from bench.report import Line, at_least, at_most, ratio_line
from bench.rounds import alternate, compare, spread_of
from bench.servers import OUTBOX, Site, Stand
from bench.worker import WARM_UP, Ear, OuterWorker
from boxengine.engine.delivering.holds.sizing import LARGE, ROWS


def two_processes(stand: Stand) -> list[Line]:
    """--processes 2 against one process, from the commit of the backlog to its last item."""
    count = stand.scale.pick(100_000, 20_000)
    with (
        Ear(stand.folder / "ear") as ear,
        stand.site(buckets=256, transport={"bench.transports.Told": {"address": str(ear.path)}}) as site,
    ):
        figures = alternate(
            {"one process": lambda: _rate(site, ear, count, 1), "two": lambda: _rate(site, ear, count, 2)},
            rounds=stand.scale.rounds,
        )
    # Two cores that also run the database have little left for a second process; a twentieth is tolerance for noise.
    return [ratio_line(f"--processes 2 over one box, {count:,}", compare(figures, ours="two"), at_least(0.95))]


def _rate(site: Site, ear: Ear, count: int, processes: int) -> float:
    """Items per second of workers that are already running and waiting when the rows are committed."""
    table = site.table()
    table.fill(0)
    site.forget_queues()
    with OuterWorker(site, "--processes", str(processes)) as worker:
        worker.wait_until_started(processes=processes)
        # As in the other drains, some items go first, to open connections and prepare statements.
        table.add(WARM_UP)
        _tell(site)
        ear.hear_all(WARM_UP)
        table.add(count)
        began = time.monotonic()
        _tell(site)
        return count / (ear.hear_all(count)[-1].at - began)


def _tell(site: Site) -> None:
    site.execute(f"NOTIFY boxengine, '{OUTBOX}'")


def start(stand: Stand) -> list[Line]:
    """The time from the start of the command to its first delivery."""
    with (
        Ear(stand.folder / "ear") as ear,
        stand.site(buckets=256, transport={"bench.transports.Told": {"address": str(ear.path)}}) as site,
    ):
        figures = [_first_delivery(site, ear) for _ in range(stand.scale.rounds)]
    return [
        Line(
            work="boxengine start to its first delivery",
            figure=statistics.median(figures),
            unit=" s",
            bar=at_most(1.5),
            spread=spread_of(figures),
        )
    ]


def _first_delivery(site: Site, ear: Ear) -> float:
    site.table().fill(1)
    site.forget_queues()
    with OuterWorker(site) as worker:
        return ear.hear().at - worker.began


def memory(stand: Stand) -> list[Line]:
    """Resident memory of a worker that drains a million items."""
    count = stand.scale.pick(1_000_000, 100_000)
    with (
        Ear(stand.folder / "ear") as ear,
        stand.site(buckets=256, transport={"bench.transports.Told": {"address": str(ear.path)}}) as site,
    ):
        site.table().fill(count)
        site.forget_queues()
        with OuterWorker(site) as worker:
            ear.hear_all(count // 10)
            early = worker.resident_kib() / 1024
            ear.hear_all(count - count // 10 - 4 * LARGE * ROWS)
            peak = worker.resident_kib("VmHWM") / 1024
            late = worker.resident_kib() / 1024
    return [
        Line(
            work=f"memory at full drain of {count:,}: peak",
            figure=peak,
            unit=" MiB",
            bar=at_most(150),
            details={"after a tenth MiB": early, "at the end MiB": late},
        ),
        Line(
            work="memory: growth over the last nine tenths",
            figure=late - early,
            unit=" MiB",
            bar=at_most(10),
            note="flat means: nothing is kept per item",
        ),
    ]
