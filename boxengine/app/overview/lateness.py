"""Boxes whose oldest item has waited for long: whether that is more than what other sentences tell, and what to look at."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from boxengine.app.overview.facts import LONG, Facts, Problem, Severity, Stuck
from boxengine.app.overview.words import lasting
from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Status
from boxengine.ports import Precision, WorkerInfo


def late(facts: Facts) -> Iterator[Problem]:
    """The oldest item has waited for long, and neither for a person nor for its next attempt."""
    if facts.waits_since is None or facts.paused or facts.circuits or not facts.workers:
        return
    waited = facts.now - facts.waits_since
    others, hanging = _others_wait(facts), _hanging(facts)
    if waited <= LONG or (others is False and hanging is None):
        return
    name, stalled = facts.box.name, others is True and _is_stalled(facts)
    sentence = f"The oldest pending item of {name} has waited for {lasting(waited)}."
    advice = (
        "Items may arrive faster than they are delivered: look at the rate, the slowest transports and the workers."
    )
    if others is None:
        advice = f"It may wait for an item that failed. If not, {advice[0].lower()}{advice[1:]}"
    if stalled:
        sentence = f"Nothing of {name} is delivered, and its oldest pending item has waited for {lasting(waited)}."
        advice = "A worker runs: its log says what does not work, and boxengine doctor what the servers refuse."
    if hanging is not None:
        worker, since = hanging
        sentence += (
            f" A thread of process {worker.pid} on {worker.host} has had one batch for {lasting(facts.now - since)}."
        )
        advice = (
            f"A call may hang: kill -USR1 {worker.pid} on {worker.host} logs where. Restart that worker, and give the transport "
            "a timeout."
        )
    yield Problem(
        kind="stalled" if stalled else "late",
        severity=Severity.STOPPED if stalled else Severity.SLOW,
        box=name,
        statuses=(Status.PENDING,),
        sentence=sentence,
        advice=advice,
    )


def _others_wait(facts: Facts) -> bool | None:
    """Whether items wait besides those that failed and those behind them, of which other sentences tell; None: unknown."""
    holding = [each for each in facts.stuck if _holds(each, facts)]
    if not holding or facts.counts is None or facts.waiting is None:
        return True
    followers = [each.followers for each in holding if each.followers is not None]
    resting = sum(count.number for count in followers) + sum(each.row.status == Status.PENDING for each in holding)
    if facts.waiting.precision is Precision.EXACT and facts.waiting.number <= resting:
        return False
    retrying, tried = facts.counts.retrying, sum(each.row.status == Status.PENDING for each in facts.stuck)
    capped = any(count.precision is not Precision.EXACT for count in followers)
    return None if capped or facts.more_leading or retrying is None or retrying.number > tried else True


def _holds(stuck: Stuck, facts: Facts) -> bool:
    """Whether a person, or the time of the next attempt, is what this item and its followers wait for, and not a worker."""
    if facts.box.strict_order is not StrictOrder.NONE and not stuck.leads:
        return False  # counted among the followers of the first
    if stuck.row.status == Status.FAILED:
        return True
    return stuck.due_at is not None and stuck.due_at > facts.now - LONG


def _is_stalled(facts: Facts) -> bool:
    """Whether a worker that has run for a while has not even tried to deliver anything."""
    began = facts.now - LONG
    runs = any(worker.started_at < began for worker in facts.workers or ())
    return runs and facts.lately is not None and not facts.lately.delivered and not facts.lately.failed


def _hanging(facts: Facts) -> tuple[WorkerInfo, datetime] | None:
    """The worker whose thread has been busy with one batch of the box for longest, if that is long, and since when."""
    found = [
        (worker, each.since)
        for worker in facts.workers or ()
        for each in worker.at_work or ()
        if each.box == facts.box.name and facts.now - each.since > LONG
    ]
    return min(found, key=lambda each: each[1], default=None)
