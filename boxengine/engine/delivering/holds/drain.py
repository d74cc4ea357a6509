"""A drain: the buckets of one hold, worked on batch after batch.

It keeps where to read on in each bucket and whose turn is next, and it is the only one to let a bucket go. What is done
with the rows is its ``Work``'s business; when to stop, to share and to hand back is the processor's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId
from boxengine.domain.job import ANY_ID, Job
from boxengine.engine.delivering.holds.follow_up import FollowUp
from boxengine.engine.delivering.holds.holding import Holding
from boxengine.engine.delivering.holds.sizing import Sizing, next_width
from boxengine.engine.delivering.work import NO_CAUTION, Caution, Errand, Report, Work
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.ports import Clock, WhenLong


class Drain:
    """The buckets of one hold, worked on by one thread."""

    def __init__(
        self,
        holding: Holding,
        work: Work,
        *,
        sizing: Sizing,
        follow_up: FollowUp,
        pauses: PauseWatch,
        clock: Clock,
    ) -> None:
        self.holding = holding
        self.claimed = 0
        """Rows that its batches have read so far."""
        self.at_rest = False
        """Whether all batches that have read rows left items at rest, and recorded nothing: see ``Report.at_rest``."""
        self._work = work
        self._sizing = sizing
        self._follow_up = follow_up
        self._pauses = pauses
        self._clock = clock
        self._hold = holding.hold
        """As it was taken."""
        self._positions: dict[int, ItemId | None] = dict.fromkeys(sorted(holding.buckets))
        """By bucket, the id after which to read, None at the start; the bucket whose turn is next comes first."""
        self._width = len(self._positions)
        self._batches = 0

    @property
    def box(self) -> Box:
        """Whose buckets these are."""
        return self.holding.box

    @property
    def buckets(self) -> Collection[int]:
        """The buckets that are not empty yet, the next first."""
        return self._positions.keys()

    @property
    def orphaned(self) -> frozenset[int]:
        """Buckets whose last holder died."""
        return self._hold.orphaned

    # ── batches ──────────────────────────────────────────────────────────────────────────────────────

    def step(self, *, until: float) -> Report:
        """One batch of the buckets whose turn it is; empty buckets are released."""
        chosen = dict(islice(self._positions.items(), self._width))
        began = self._clock.monotonic()
        report = self._run(chosen, rows=self._sizing.cut(), number=self._batches, until=until)
        if self._batches == 0:
            self._follow_up.first_batch(self._hold, report)
        self._batches += 1
        self.claimed += report.claimed
        self._sizing.learn(report, seconds=self._clock.monotonic() - began)
        self._width = next_width(len(chosen), report)
        self._go_on(chosen, report)
        for bucket in chosen:
            if bucket in self._positions and bucket in report.positions:
                self._positions[bucket] = self._positions.pop(bucket)  # to the end: the others come first
        return report

    def careful_step(self, bucket: int, caution: Caution, *, until: float) -> Report:
        """One batch of a bucket whose last holder died."""
        chosen = {bucket: self._positions[bucket]}
        report = self._run(chosen, rows=caution.rows(self._sizing.usual()), until=until, caution=caution)
        self._go_on(chosen, report)
        return report

    # ── letting go ───────────────────────────────────────────────────────────────────────────────────

    def share(self) -> None:
        """Hands back the half of the buckets whose turn comes last, for threads that have none.

        A long queue has enough for them, and the buckets stay.
        """
        self._hand_back(list(self._positions)[len(self._positions) // 2 :], WhenLong.KEEP)

    def pass_on(self) -> list[Job]:
        """Frees the leases of all buckets, for a hold that has them and others; returns the jobs for that.

        Buckets that somebody else wants again stay.
        """
        buckets = frozenset(self._positions)
        self.holding.reading(buckets)  # that hold reads them from the start
        for bucket in buckets - self.holding.release(buckets):
            del self._positions[bucket]
        now = int(self._clock.now().timestamp())
        return [Job(bucket, now, ANY_ID) for bucket in sorted(buckets - self._positions.keys())]

    def end_turn(self) -> None:
        """Hands back all buckets, so that others get their turn. What a long queue does not take is looked for."""
        buckets = list(self._positions)
        if not self._hand_back(buckets, WhenLong.FREE):
            self._follow_up.left_to_polls(self.box, buckets)

    def hand_back(self) -> None:
        """Hands back all buckets to the queue, for whoever works on the box next."""
        self._hand_back(list(self._positions), WhenLong.QUEUE)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _run(
        self,
        chosen: Mapping[int, ItemId | None],
        *,
        rows: int,
        until: float,
        number: int = 0,
        caution: Caution = NO_CAUTION,
    ) -> Report:
        errand = Errand(positions=chosen, rows=rows, until=until, term=self.holding, number=number, caution=caution)
        self.holding.reading(chosen)
        began = self._clock.monotonic()
        try:
            report = self._work.run(errand)
        except BaseException as error:
            if isinstance(error, MemoryError) or self._sizing.lasts_too_long(self._clock.monotonic() - began):
                self._sizing.ran_out(rows)
            raise
        if report.claimed and self._sizing.lasts_too_long(self._clock.monotonic() - began):
            self._sizing.ran_out(report.claimed)
        else:
            self._sizing.fitted()
        if report.claimed:
            self.at_rest = report.at_rest and (self.at_rest or not self.claimed)
        self._follow_up.batch(self.box, report)
        return report

    def _go_on(self, chosen: Collection[int], report: Report) -> None:
        """Keeps the buckets that are still held and not empty."""
        self._positions.update(report.positions)
        wanted = self.holding.release(report.exhausted)
        released = report.exhausted - wanted
        for bucket in wanted:
            self._positions[bucket] = None  # new rows have come: read from the start
        if report.refused:
            self._positions.update(dict.fromkeys(self.holding.give_way(report.refused)))
        lost = self._positions.keys() - self.holding.buckets
        # The leases of these run out by themselves: the pause before anybody tries again.
        self.holding.leave((lost | self._stuck(chosen, report)) - released - report.refused)
        self.holding.secure()  # only a hold's first batch does without leases
        self._keep_what_is_held()

    def _stuck(self, chosen: Collection[int], report: Report) -> frozenset[int]:
        """Buckets in which no item could be sent."""
        if report.progressed or (self._pauses.paused(self.box) and not report.unreachable):
            return frozenset()
        # Where a receiver is away, the items of all other buckets would go the same way.
        return frozenset(self._positions if report.unreachable else chosen)

    def _hand_back(self, buckets: Sequence[int], when_long: WhenLong) -> bool:
        """Whether the buckets were queued."""
        now = int(self._clock.now().timestamp())
        queued = self.holding.hand_back([Job(bucket, now, ANY_ID) for bucket in buckets], when_long=when_long)
        self._keep_what_is_held()
        return queued

    def _keep_what_is_held(self) -> None:
        for bucket in self._positions.keys() - self.holding.buckets:
            del self._positions[bucket]
