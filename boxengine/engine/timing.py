"""How long leases last and how often loops look: one value, because these numbers depend on one another.

A number that is right by itself can break a promise together with another one. So each relation between them is a rule
with its reason, and a ``Timing`` that breaks a rule cannot be made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """All in seconds, except for the shares of a lease.

    Raises:
        ValueError: a rule is broken; with the reason for the rule.

    Example::

        replace(TIMING, lease=8.0, stale=4.0)
    """

    # Leases on buckets and partitions.
    lease: float = 4.0
    """How long the leases of a worker that died stand in the way. One that lives renews them."""
    longest_lease: float = 60.0
    """Beside a slow coordinator leases last longer, up to this: a worker that dies blocks its buckets for no longer."""
    renewal: float = 1 / 3
    """Share of a lease between two renewals."""
    fresh: float = 0.7
    """A lease with more than this share left is not renewed yet."""
    new: float = 1.0
    """A row this young cannot have an unrecorded attempt, because that attempt's lease would still block it."""
    failed: float = 1.5
    """How long buckets are left alone, at least, after a batch that failed because the database was away, or because another
    transaction was in the way."""
    stale: float = 2.0
    """How long the mark of a queued bucket is believed without a look at the queue."""
    by_lease: float = 1.25
    """A worker younger than so many leases works on no bucket without one."""
    asked_lately: float = 60.0
    """For so long after a bucket of a box was named, a worker keeps looking which of that box's buckets are in work."""

    # Round trips to the coordinator.
    unnoticed: float = 0.25
    """Up to this, leases keep their usual length."""
    quick_again: float = 0.5
    """Below this, a slow coordinator counts as quick again."""
    slow: float = 1.0
    """Above this, somebody is told that the coordinator is slow."""

    # Looks at the store.
    shortest_gap: float = 0.002
    """Between two polls of one partition, whoever asks. What arrives in between is taken along."""
    longest_gap: float = 0.2
    """The same while all that is found is queued or in work already. Its holders look again by themselves."""
    longest_named_gap: float = 0.02
    """The same where writers have named the buckets: one of them may be free by now, and its row waits for this."""
    shortest_look: float = 0.02
    """Between two checks of a box in which rows come due one after the other."""
    look_again: float = 0.4
    """Between two checks of a box while rows are due: whoever is at them may have died."""
    longest_idle: float = 5.0
    """Between two checks of a box in which nothing happens while wake-ups work."""
    survey: float = 0.8
    """Between two surveys of many boxes."""
    surveyed: float = 600.0
    """Between two checks of a box that a survey finds without pending rows."""
    empty: float = 1.0
    """How long an "empty" reading of a queue is trusted when a commit asks for a poll. That spares a round trip on the way
    of a fresh item; at worst it lets one poll through that a long queue should have put off."""

    # Pauses of boxes.
    pause_heard: float = 2.0
    """Between two questions which boxes are paused."""
    pause_asked_again: float = 1.0
    """The same when the coordinator did not answer, or was slow to."""
    flush: float = 1.0
    """After this time a batch stops between two items or waves and records what it has; it hears of pauses then."""
    pause_promised: float = 10.0
    """A pause holds everywhere within this."""

    # One worker at a time, or one worker's word.
    announced: float = 10.0
    """Between two announcements of a worker."""
    circuits_seen: float = 2.0
    """Within this a worker announces that a circuit of its opened or closed."""
    announced_for: float = 30.0
    """How long a worker that was killed still shows."""
    measured: float = 15.0
    """Between two measurements of how far behind a box is."""
    measured_for: float = 40.0
    """How long the worker that measures is trusted to go on."""

    def __post_init__(self) -> None:
        for rule in RULES:
            if not rule.holds(self):
                raise ValueError(f"these times do not fit together: {rule.reason}")


class Rule(NamedTuple):
    """A relation between times, and what goes wrong where it does not hold."""

    reason: str
    holds: Callable[[Timing], bool]


RULES = (
    Rule(
        "a lease must outlast one renewal that fails, or a single lost packet takes a live worker's buckets away",
        lambda t: 2 * t.renewal < 1,
    ),
    Rule(
        "a lease that was too fresh to renew must survive the next renewal's failure",
        lambda t: t.fresh - t.renewal > t.renewal,
    ),
    Rule(
        "a row must stop counting as new before the lease of an attempt at it can run out, or failures that were only remembered "
        "are not looked up",
        lambda t: t.new < (t.fresh - t.renewal) * t.lease,
    ),
    Rule(
        "nor may it count as new when buckets are tried again soon after a batch failed",
        lambda t: t.new < t.failed <= t.lease,
    ),
    Rule(
        "a job that was popped and then lost must be noticed no later than a worker that died with its lease",
        lambda t: t.stale < t.lease,
    ),
    Rule(
        "a worker must work by leases alone until those of the worker before it have run out, because only under a lease is what "
        "killed that one met with care",
        lambda t: t.by_lease > 1,
    ),
    Rule(
        "a round trip that lengthens no lease must end before the next renewal begins",
        lambda t: t.unnoticed < t.renewal * t.lease,
    ),
    Rule(
        "between slow and quick again there must be a distance, or a pace around one of them is told again and again",
        lambda t: t.unnoticed < t.quick_again < t.slow,
    ),
    Rule("a slow coordinator must not make leases shorter", lambda t: t.lease <= t.longest_lease),
    Rule(
        "rows that are due must be looked at several times per lease, or the buckets of a dead worker lie idle after it",
        lambda t: 2 * t.look_again <= t.lease,
    ),
    Rule(
        "a partition must not be polled more rarely than its box is checked while rows are due, or the check's request waits",
        lambda t: t.shortest_gap <= t.longest_gap <= t.look_again,
    ),
    Rule(
        "a bucket that a writer has named must not wait longer than one that somebody has yet to find",
        lambda t: t.shortest_gap <= t.longest_named_gap <= t.longest_gap,
    ),
    Rule(
        "checks must grow rarer from due rows to quiet boxes, never more frequent",
        lambda t: t.shortest_look <= t.look_again <= t.longest_idle <= t.surveyed,
    ),
    Rule(
        "a survey replaces the checks of quiet boxes, so it must not be rarer than they are",
        lambda t: t.survey <= t.longest_idle,
    ),
    Rule(
        "an 'empty' reading must not be trusted for longer than a dead worker's lease, in which a queue fills up",
        lambda t: t.empty <= t.lease,
    ),
    Rule(
        "a pause must hold within the promise though the question was just asked, failed once, and a batch is under way",
        lambda t: t.pause_heard + t.pause_asked_again + t.flush < t.pause_promised,
    ),
    Rule(
        "a live worker must not vanish because one of its announcements is lost",
        lambda t: 2 * t.announced < t.announced_for,
    ),
    Rule(
        "an open circuit must show sooner than with the next announcement that is due anyway",
        lambda t: t.circuits_seen < t.announced,
    ),
    Rule(
        "the worker that measures must not be replaced because it misses one turn, or two of them contradict each other",
        lambda t: 2 * t.measured < t.measured_for,
    ),
)

TIMING = Timing()
"""What workers run with."""
