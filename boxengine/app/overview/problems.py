"""What is wrong, in sentences. The one that a person on call must read first comes before any number."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from boxengine.app.overview.facts import Facts, Problem, Severity
from boxengine.app.overview.lateness import late
from boxengine.app.overview.words import counted, ellipsis, lasting, times
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.error_logs import line_of_reason
from boxengine.domain.item import Status
from boxengine.domain.words import plural
from boxengine.ports import Count, ItemRow, Precision
from boxengine.ports.people.checkup import Remark

NO_WORKER = "no-worker"
"""The kind of the problem that a box has no worker."""
_PREFIX = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z (?:[^\s:]+: )?")
_LONGEST_REASON = 160
_START_ONE = "Start one: boxengine start. If one is running, it has not reached Redis for half a minute."


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
        sentence=f"The database has kept the console waiting for {lasting(awaited)}: everything shown here is from "
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


def refusal(reason: str) -> Problem:
    """The problem of a Redis that answers, and takes no writes."""
    return Problem(
        kind="redis",
        severity=Severity.STOPPED,
        sentence=f"Redis takes no jobs, so nothing is delivered: {_told(reason).removeprefix('cannot be used: ')}.",
        advice="If it is full, raise maxmemory; if it is a replica, let redis.url lead to the primary. See boxengine doctor.",
    )


def alarm(remark: Remark) -> Problem:
    """The problem that a check of the database has found."""
    kind, severity = ("database", Severity.STOPPED) if remark.stops else ("vacuum", Severity.SLOW)
    return Problem(kind=kind, severity=severity, box=remark.box, sentence=remark.text, advice=f"{remark.advice or ''}.")


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
    yield from late(facts)


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
    wait = f" {counted(facts.waiting, 'item')} {_verb(facts.waiting, 'wait')}." if facts.waiting else ""
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
