"""What is wrong, in sentences. The one that a person on call must read first comes before any number."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from boxengine.app.overview.words import counted, ellipsis, lasting, times
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.error_logs import line_of_reason
from boxengine.domain.item import Status
from boxengine.domain.words import plural
from boxengine.ports import Count, Counts, ItemRow, OpenCircuit, Precision, WorkerInfo
from boxengine.ports.people.checkup import Remark
from boxengine.ports.people.history import Happened

NO_WORKER = "no-worker"
"""The kind of the problem that a box has no worker."""
LONG = timedelta(minutes=1)
"""A longer wait is reported even if nothing else is wrong."""
_PREFIX = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z (?:[^\s:]+: )?")
_LONGEST_REASON = 160
_START_ONE = "Start one: boxengine start. If one is running, it has not reached Redis for half a minute."


class Severity(IntEnum):
    """How bad it is; the smaller, the worse."""

    STOPPED = 0
    """Nothing is delivered."""
    STUCK = 1
    """Some items wait for a person, or for a cause that does not go away by itself."""
    SLOW = 2
    """Delivery continues, but worse than it should."""
    QUIET = 3
    """A person chose this state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong."""

    severity: Severity
    sentence: str
    advice: str
    """What to do."""
    box: str | None = None
    item: int | None = None
    """The item to look at."""
    statuses: tuple[Status, ...] = ()
    """Which items of the box to look at."""
    job_status: str | None = None
    """Which jobs of the box to look at."""
    kind: str
    """One word, under which ``docs/on-call.md`` explains the problem."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """An item whose attempts failed, and how many wait for it; None: not counted."""

    row: ItemRow
    followers: Count | None
    leads: bool = False
    """Whether it is the first of its key or bucket, so that others may wait for it."""
    due_at: datetime | None = None
    """When it is tried again; None: it is not, or could be at any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known about one box."""

    box: Box
    now: datetime
    counts: Counts | None
    waits_since: datetime | None
    paused: bool | None
    workers: Sequence[WorkerInfo] | None
    circuits: Sequence[OpenCircuit]
    stuck: Sequence[Stuck]
    more_leading: bool = False
    """Whether there are more leading items than those with counted followers."""
    stranded: str | None
    held_back: timedelta | None
    """The age of the oldest item that retention keeps for this subscription; None: it keeps none."""
    broken: str | None
    lately: Happened | None = None
    """What happened in the last minute or two; None: unknown."""
    unread: str | None = None
    """Why some of the box's numbers are unknown although the database answers."""

    @property
    def waiting(self) -> Count | None:
        """The pending items; None: not counted, or there are none."""
        pending = self.counts.pending if self.counts else None
        return pending if pending is not None and pending.number else None


def problems(facts: Facts) -> tuple[Problem, ...]:
    """What is wrong with a box, the worst first."""
    return tuple(sorted(_found(facts), key=lambda problem: problem.severity))


def trouble_of(outage: str) -> Problem:
    """The problem of a server that does not answer."""
    database = outage.startswith("the database")
    what = "The database" if database else "Redis"
    return Problem(
        kind="database" if database else "redis",
        severity=Severity.STOPPED,
        sentence=f"{what} does not answer, so nothing is delivered: {_told(outage)}.",
        advice=f"Bring {what[0].lower() + what[1:] if database else what} back. Nothing is lost, and no worker needs a restart.",
    )


def silent(awaited: timedelta, since: datetime) -> Problem:
    """The problem that the database takes a question and does not answer: what is known is from before.

    Args:
        since: when it answered last.
    """
    return Problem(
        kind="database",
        severity=Severity.STOPPED,
        sentence=f"The database has kept the console waiting for {lasting(awaited)}: all that stands here is of "
        f"{since:%H:%M:%S} UTC or earlier.",
        advice="Probably it answers nobody, and nothing is delivered: bring it back. Nothing is lost.",
    )


def _told(outage: str) -> str:
    """The outage without the server's name, which already begins the sentence."""
    return outage.removeprefix("the database: ").removeprefix("Redis: ").rstrip(".")


def useless_table(box: str, reason: str) -> Problem:
    """The problem of a box whose table is missing, or lacks something."""
    return Problem(
        kind="table",
        severity=Severity.STOPPED,
        box=box,
        sentence=f"{box} cannot work: {reason}",
        advice="boxengine db check lists what the table lacks.",
    )


def unread_table(box: str, reason: str) -> Problem:
    """The problem of a box of which some numbers are unknown although the database answers."""
    return Problem(
        kind="unread",
        severity=Severity.SLOW,
        box=box,
        sentence=f"The numbers of {box} are incomplete: {reason.rstrip('.')}.",
        advice="Workers may still deliver. boxengine doctor says what makes the database slow, and which privileges are missing.",
    )


def alarm(remark: Remark) -> Problem:
    """The problem that a check of the servers has found."""
    if remark.area == "redis":
        return Problem(kind="redis", severity=Severity.STOPPED, sentence=remark.text, advice=remark.advice or "")
    return Problem(
        kind="vacuum", severity=Severity.SLOW, box=remark.box, sentence=remark.text, advice=f"{remark.advice or ''}."
    )


def nobody_works(pending: Sequence[Count | None], *, job_workers: int = 0) -> Problem:
    """The problem that no box has a worker.

    Args:
        job_workers: how many run long jobs alone.
    """
    meant = " for the outboxes and inboxes" if job_workers else ""
    known = [count for count in pending if count is not None and count.number]
    exact = all(count.precision is Precision.EXACT for count in known)
    total = Count(sum(count.number for count in known), Precision.EXACT if exact else Precision.AT_LEAST)
    return Problem(
        kind=NO_WORKER,
        severity=Severity.STOPPED if known else Severity.SLOW,
        sentence=f"No worker runs{meant}" + (f", and {_waiting(total)}." if known else "."),
        advice=_START_ONE,
    )


def reason_of(error_log: str | None) -> str:
    """The reason that an error log gives, without time and transport."""
    return ellipsis(_PREFIX.sub("", line_of_reason(error_log or "")) or "no reason was kept", _LONGEST_REASON)


def _found(facts: Facts) -> Iterator[Problem]:
    box = facts.box
    if facts.broken is not None:
        yield useless_table(box.name, facts.broken)
        return
    if facts.unread is not None:
        yield unread_table(box.name, facts.unread)
    yield from _standing_still(facts)
    if facts.stranded is not None:
        yield Problem(
            kind="stranded",
            severity=Severity.STUCK,
            box=box.name,
            sentence=f"{box.name}: {facts.stranded}.",
            advice="No worker reads those buckets. bucket_size was changed while items were undelivered.",
        )
    if facts.held_back is not None:
        sentence, advice = told_of_retention(box, facts.held_back)
        yield Problem(kind="retention", severity=Severity.SLOW, box=box.name, sentence=sentence, advice=advice)
    yield from _circuits(facts)
    blocking = list(_blocking(facts))
    yield from blocking
    yield from _failing(facts, told=bool(blocking))
    yield from _late(facts)


def _standing_still(facts: Facts) -> Iterator[Problem]:
    """Nobody takes the box's items."""
    name, wait = facts.box.name, f", and {_waiting(facts.waiting)}." if facts.waiting else "."
    if facts.paused:
        yield Problem(
            kind="paused",
            severity=Severity.STUCK if facts.waiting else Severity.QUIET,
            box=name,
            sentence=f"{name} is paused{wait}",
            advice="Resume the box once the reason for the pause is gone.",
        )
    elif facts.workers is not None and not facts.workers:
        yield Problem(
            kind=NO_WORKER,
            severity=Severity.STOPPED if facts.waiting else Severity.SLOW,
            box=name,
            sentence=f"No worker runs for {name}{wait}",
            advice=_START_ONE,
        )


def told_of_retention(box: Box, age: timedelta) -> tuple[str, str]:
    """What a subscription keeps retention from, and what to do."""
    sentence = f"{box.name} holds back retention: it has not delivered an item that is {lasting(age)} old."
    end = (
        "" if box.retention.at_most is None else f" At {lasting(box.retention.at_most)} items are deleted undelivered."
    )
    return sentence, f"Resume it, skip its old items with boxengine subscriptions skip-to, or drop it.{end}"


def _circuits(facts: Facts) -> Iterator[Problem]:
    wait = f" {counted(facts.waiting, 'item')} wait." if facts.waiting else ""
    by_transport = {circuit.transport: circuit for circuit in facts.circuits}
    for transport, circuit in by_transport.items():
        yield Problem(
            kind="receiver",
            severity=Severity.STOPPED,
            box=facts.box.name,
            sentence=f"{transport} of {facts.box.name} has not reached its receiver for "
            f"{lasting(facts.now - circuit.since)}: {ellipsis(circuit.reason, _LONGEST_REASON)}.{wait}",
            advice="Fix the receiver. Delivery resumes by itself; no attempt is counted, and nothing is lost.",
        )


def _blocking(facts: Facts) -> Iterator[Problem]:
    """The item that strict order makes most others wait for, a failed one before those that are retried."""
    if facts.box.strict_order is StrictOrder.NONE:
        return
    by_bucket = facts.box.strict_order is StrictOrder.BUCKET
    leading = [(each.row, each.followers) for each in facts.stuck if each.followers and each.followers.number]
    if not leading:
        return
    row, behind = max(leading, key=lambda each: (each[0].status == Status.FAILED, each[1], -each[0].id))
    place = f"bucket {row.bucket}" if by_bucket else f"key {ellipsis(row.event_key, 40)}"
    others = _others(len(leading) - 1, at_least=facts.more_leading)
    parked = row.status == Status.FAILED
    yield Problem(
        kind="parked" if parked else "held-back",
        severity=Severity.STUCK if parked else Severity.SLOW,
        box=facts.box.name,
        item=row.id,
        statuses=(Status.FAILED,) if parked else (Status.PENDING,),
        sentence=f"{counted(behind, 'item')} of {place} {_verb(behind, 'wait')} for item {row.id}, which failed "
        f"{times(row.errors_count)}: {reason_of(row.error_log)}{others}",
        advice="Fix the cause and retry the item, or discard it: its followers then go on without it."
        if parked
        else "It is retried automatically. To release its followers now, retry or discard it.",
    )


def _others(number: int, *, at_least: bool) -> str:
    if not number:
        return ""
    told = f"{plural(number, 'other item')} {'holds' if number == 1 else 'hold'} others back"
    return f" (and {'at least ' if at_least else ''}{told})"


def _failing(facts: Facts, *, told: bool) -> Iterator[Problem]:
    counts, name = facts.counts, facts.box.name
    if counts is None:
        return
    failed, retrying = counts.failed, counts.retrying
    if failed is not None and failed.number and not (told and failed.number == 1):
        rows = [stuck.row for stuck in facts.stuck if stuck.row.status == Status.FAILED]
        yield Problem(
            kind="failed",
            severity=Severity.STUCK,
            box=name,
            item=rows[0].id if len(rows) == 1 else None,
            statuses=(Status.FAILED,),
            sentence=f"{counted(failed, 'item')} of {name} failed and {_verb(failed, 'wait')} for a person{_most(rows)}",
            advice="Look at the reasons. Retry the items when the cause is fixed; discard those that nobody needs.",
        )
    if retrying is not None and retrying.number and not told:
        rows = [stuck.row for stuck in facts.stuck if stuck.row.status == Status.PENDING]
        yield Problem(
            kind="retrying",
            severity=Severity.SLOW,
            box=name,
            item=rows[0].id if len(rows) == 1 else None,
            statuses=(Status.PENDING,),
            sentence=f"{counted(retrying, 'item')} of {name} failed before and will be retried{_most(rows)}",
            advice="If all give the same reason, suspect the receiver; if they belong to a few keys, suspect the data.",
        )


def _late(facts: Facts) -> Iterator[Problem]:
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


def _most(rows: Sequence[ItemRow]) -> str:
    """The most common reason among the rows."""
    if not rows:
        return "."
    (reason, number), *_ = Counter(reason_of(row.error_log) for row in rows).most_common(1)
    if number == len(rows):
        return f": {reason}"
    return f". Of the last {len(rows)}, {number} say: {reason}"


def _waiting(count: Count) -> str:
    return f"{counted(count, 'item')} {_verb(count, 'wait')}"


def _verb(count: Count, verb: str) -> str:
    return f"{verb}s" if count.number == 1 and count.precision is Precision.EXACT else verb
