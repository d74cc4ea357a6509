"""Rows of an outbox into a topic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from boxengine.engine.delivering.holds.sizing import LARGE, ROWS
from tests.chaos.kafka.judge import Findings, judge
from tests.chaos.kafka.plan import Plan, drained, killed_at_random, progressed, wait
from tests.chaos.kafka.probes import ProbeWatch
from tests.chaos.kafka.servers import Servers
from tests.chaos.kafka.site import OUTBOX, Committed, Process, Site, outbox_site
from tests.chaos.kafka.topic import read
from tests.chaos.report import Row
from tests.eventually import eventually

IN_WORK = 4 * LARGE * ROWS
"""Items that one worker may have handed over and not settled: threads times rows of a batch."""
TELLING = 10.0
"""Seconds after which readiness must have told that the broker is out of reach."""
TRANSACTION_TIMEOUT = 60.0
"""Seconds after which the broker aborts what a dead worker left open."""


def normal(servers: Servers, folder: Path, plan: Plan) -> Row:
    """Everything works: each item once, each key in order."""
    with outbox_site(servers, folder) as site:
        committed = site.fill(plan.items)
        began = time.monotonic()
        worker = site.run("start")
        drained(site.pending)
        note = f"{plan.items / (time.monotonic() - began):,.0f} items/s, the start of the worker included"
        return _row("normal", site, committed, times=1, problems=worker.stop(), note=note)


def broker_sigkill(servers: Servers, folder: Path, plan: Plan) -> Row:
    """The broker is killed in mid-drain, stays away for some seconds, and comes back with its data."""
    chance = plan.randomness("broker-sigkill")
    outages, recoveries = [], []
    with outbox_site(servers, folder) as site, ProbeWatch(site.probes) as probes:
        late = _late(plan)
        committed = site.fill(plan.items - plan.broker_kills * late)
        worker = site.run("start")
        for number in range(plan.broker_kills):
            _left(site, plan.items * (plan.broker_kills - number) // (plan.broker_kills + 1))
            begin = time.monotonic()
            servers.broker.kill()
            committed += site.fill(late)
            wait(chance.uniform(1.0, 5.0))
            servers.broker.start()
            outages.append((begin, time.monotonic()))
            recoveries.append(progressed(site.pending))
        drained(site.pending)
        problems, note = _truth(probes, worker, outages)
        problems += worker.stop()
        row = _row("broker-sigkill", site, committed, times=len(outages), problems=problems, note=note)
        return _with_recovery(row, recoveries, outages)


def broker_unreachable(servers: Servers, folder: Path, plan: Plan) -> Row:
    """Connections are refused when the worker starts; in mid-run they stay open, and nothing passes."""
    outages, recoveries = [], []
    with (
        outbox_site(servers, folder, delivery_timeout=plan.delivery_timeout) as site,
        ProbeWatch(site.probes) as probes,
    ):
        late, faults = _late(plan), ((servers.proxy.cut, plan.away_at_start), (servers.proxy.stall, plan.away))
        committed = site.fill(plan.items - len(faults) * late)
        servers.proxy.cut()
        worker = site.run("start")
        for fault, seconds in faults:
            fault()
            begin = time.monotonic()
            committed += site.fill(late)
            wait(seconds)
            servers.proxy.heal()
            outages.append((begin, time.monotonic()))
            recoveries.append(progressed(site.pending))
            _left(site, plan.items // 2)
        drained(site.pending)
        # The silence is told only when something has waited in vain.
        problems, note = _truth(probes, worker, outages, telling=plan.delivery_timeout + TELLING)
        problems += worker.stop()
        row = _row("broker-unreachable", site, committed, times=2, problems=problems, note=note, in_work=IN_WORK)
        return _with_recovery(row, recoveries, outages)


def worker_sigkill_transactional(servers: Servers, folder: Path, plan: Plan) -> Row:
    """One Kafka transaction per batch; the worker is killed at random moments of the drain."""
    chance = plan.randomness("worker-sigkill-transactional")
    with outbox_site(servers, folder, transactional=True, transactional_id="chaos") as site:
        committed = site.fill(plan.items)
        worker = killed_at_random(
            lambda: site.run("start"), site.pending, total=plan.items, times=plan.kills, randomness=chance
        )
        drained(site.pending)
        problems = worker.stop()
        return _row(
            "worker-sigkill-transactional",
            site,
            committed,
            times=plan.kills,
            problems=problems,
            in_work=plan.kills * IN_WORK,
            patience=TRANSACTION_TIMEOUT + 30,
        )


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────────────


def _late(plan: Plan) -> int:
    """How many items are written during an outage. A quick worker may have drained all others before the fault struck."""
    return plan.items // 20


def _left(site: Site, most: int) -> None:
    drained(lambda: max(0, site.pending() - most))


def _truth(
    probes: ProbeWatch, worker: Process, outages: Sequence[tuple[float, float]], *, telling: float = TELLING
) -> tuple[list[str], str]:
    """What was wrong with the worker's word during outages, and how soon it told of them."""
    problems, told, back = [], [], []
    if worker.handle.poll() is not None:
        problems.append("the worker has ended")
    if any(not answer.alive for answer in probes.answers):
        problems.append("liveness said no, which would have had the worker killed")
    for begin, end in outages:
        silent_for = probes.not_ready_after(begin, end)
        if silent_for is not None:
            told.append(silent_for)
        elif end - begin > telling:
            problems.append(f"readiness said yes through {end - begin:.0f} s without a broker")
        # The last outage may have ended less than a probe ago.
        what = "readiness says yes once the broker is back"
        again = eventually(lambda end=end: probes.ready_after(end), patience=TELLING + 20, what=what)  # type: ignore[misc]
        back.append(again or 0.0)
    note = f"not ready after {_seconds(told)}, ready again {_seconds(back)} after the broker"
    return problems, note


def _seconds(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f} s" for value in values) or "never"


def _row(
    name: str,
    site: Site,
    committed: Sequence[Committed],
    *,
    times: int,
    problems: Sequence[str],
    note: str = "",
    in_work: int = 0,
    patience: float = 30.0,
) -> Row:
    messages = read(site.servers.broker.bootstrap, site.topic, expected=len(committed), patience=patience)
    found: Findings = judge(committed, messages)
    states = site.ask(f"SELECT status, errors_count, count(*) FROM {OUTBOX}s GROUP BY 1, 2")
    if states != [(2, 0, len(committed))]:
        problems = [*problems, f"rows by status and errors_count: {states}"]
    return Row(
        fault=name,
        times=times,
        items=len(committed),
        lost=len(found.lost),
        reordered=len(found.reordered),
        duplicates=found.repeats,
        in_work=in_work,
        note=note,
        problems=(*problems, *found.sentences, *site.tracebacks()),
    )


def _with_recovery(row: Row, recoveries: Sequence[float], outages: Sequence[tuple[float, float]]) -> Row:
    stalls = [end - begin + recovery for (begin, end), recovery in zip(outages, recoveries, strict=True)]
    return replace(row, recovery=round(max(recoveries), 1), longest_stall=round(max(stalls), 1))
