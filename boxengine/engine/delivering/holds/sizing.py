"""How wide a batch is and how many rows it has: every threshold of a drain, and what it learns from batch to batch."""

from __future__ import annotations

from boxengine.domain.box import Box, Storage
from boxengine.engine.delivering.work import Report

ROWS = 500
"""Rows per transaction of a usual batch. A crash may repeat one batch for each thread, so up to 500 items, or 1,000 and 2,000
while batches are large."""
LARGE = 2
"""Times ``ROWS``, so 1,000, while batches are quick. Sharing the fixed cost of a batch gives a sixth more items per second."""
LARGE_UNMARKED = 4
"""The same for boxes that mark no row as delivered, because delivery deletes it or moves a position in a log. So 2,000: such
rows take the database half as long. In a log they are delivered a fifth faster than batches of 1,000."""
QUICK = 0.25
"""Seconds. A batch that took no longer is followed by a large one. With eight threads on two cores, 500 rows take 0.1 s."""
LIGHT = 1_000_000
"""Bytes of a batch's payloads. No large batch follows a heavier one."""
CAREFUL_ITEMS = 250
"""Items of a bucket that are sent one by one once two holders have died of it. A batch may have had more of the bucket in
hand; an item beyond these costs a few more deaths before it is found."""
WORTH_SHARING = 100
"""A batch with this many rows suggests that its buckets have many more."""
BACKLOG = 1000
"""A batch with this many rows says that one thread is not enough. With fewer it may have fallen behind for a moment only, and
four threads with smaller batches would not catch up sooner."""
AT_ONCE = 0.005
"""Seconds that the transports of a batch take where they answer at once. More threads gain nothing there."""
FEWEST = 4
"""Never narrow a batch below this many buckets."""
REGAINED = 10
"""Rows by which each batch grows again, after memory or time did not suffice for a larger one."""


class Sizing:
    """Sizes one box's batches. Shared by its threads, and kept from one hold to the next."""

    def __init__(self, box: Box, *, rows: int = ROWS, longest: float = float("inf")) -> None:
        """Args:
        rows: of a batch that is not large.
        longest: seconds that a batch should take at most.
        """
        self._usual = rows
        self._longest = longest
        self._most = rows * times_large(box)
        self._quick = False
        self._affordable = self._most
        """Rows for which there was memory, and time."""

    def usual(self) -> int:
        """Rows of a batch about which nothing is known yet."""
        return min(self._usual, self._affordable)

    def cut(self) -> int:
        """Rows of the next batch."""
        return min(self._most, self._affordable) if self._quick else self.usual()

    def learn(self, report: Report, *, seconds: float) -> None:
        """Takes the pace of a batch into account."""
        if seconds > QUICK or report.weight > LIGHT:
            self._quick = False
        elif worth_sharing(report):
            self._quick = True  # a few quick rows say nothing about many

    def lasts_too_long(self, seconds: float) -> bool:
        """Whether batches that take so long must have fewer rows.

        One that outlasts its transaction is recorded nowhere. It would be sent again and again.
        """
        return seconds > self._longest

    def fitted(self) -> None:
        """A batch found memory and time enough."""
        self._affordable = min(self._affordable + REGAINED, self._most)

    def ran_out(self, rows: int) -> None:
        """Memory or time did not suffice for a batch of so many rows."""
        # Another thread may have learnt of fewer meanwhile.
        self._affordable = max(1, min(self._affordable, rows // 2))


def times_large(box: Box) -> int:
    """How many usual batches of the box a large one is."""
    marks = box.storage is Storage.TABLE and not box.retention.deletes_on_delivery
    return LARGE if marks else LARGE_UNMARKED


def worth_sharing(report: Report, rows: int = WORTH_SHARING) -> bool:
    """Whether the buckets seem to have more than one thread should keep to itself."""
    return report.claimed >= rows


def is_backlog(report: Report) -> bool:
    """Whether the rows are for several threads, whatever was left to one of them."""
    return report.claimed >= BACKLOG


def is_quick(report: Report) -> bool:
    """Whether one thread seems to keep up: few rows had come, and their transports answered at once."""
    return report.sending <= AT_ONCE and not worth_sharing(report) and not report.unreachable


def next_width(width: int, report: Report) -> int:
    """How many buckets the next batch takes.

    Each look at a bucket walks over what was delivered of it since the last vacuum. So where there is much to take, more
    is taken at a look: the width is halved while all buckets have more than their share of a batch. Where the first buckets
    filled the batch, as those of a log may, the next one takes as many.
    """
    if not worth_sharing(report):
        return 2 * width
    come_to = len(report.positions.keys() | report.exhausted | report.refused)
    if come_to < width:
        return max(FEWEST, come_to)
    return 2 * width if report.exhausted else max(FEWEST, width // 2)
