"""A job: one bucket with rows to deliver, as the queue holds it."""

from __future__ import annotations

from dataclasses import dataclass, field

from boxengine.domain.item_id import ItemId

ANY_ID = (1,)
"""For a job whose rows nobody has looked at: the format requires an id."""


@dataclass(frozen=True, slots=True)
class Job:
    """``bucket:unix_seconds:id,id,id`` is the whole format, shared with sbmt-outbox.

    The ids are those that the poller saw, if it looked; the holder of the bucket reads the rows again.
    """

    bucket: int
    pushed_at: int
    """Unix time in seconds."""
    ids: tuple[ItemId, ...]
    named: bool = field(default=False, compare=False)
    """Whether a writer has just named the bucket. The format knows nothing of it."""

    def encode(self) -> str:
        # The format allows only numbers, so for a store with other ids it cannot say which rows were seen.
        ids = self.ids if isinstance(self.ids[0], int) else ANY_ID
        return f"{self.bucket}:{self.pushed_at}:{','.join(map(str, ids))}"

    @classmethod
    def decode(cls, text: str | bytes) -> Job:
        """The job in ``text``.

        Raises:
            ValueError: the text is not a job (a foreign or corrupt element).
        """
        if isinstance(text, bytes):
            text = text.decode("ascii", errors="strict")
        bucket, pushed_at, ids, *_ = (*text.split(":"), "", "")
        job = cls(int(bucket), int(pushed_at), tuple(map(int, ids.split(","))))
        if job.bucket < 0 or min(job.ids) <= 0:
            raise ValueError(f"not a job: {text[:80]!r}")
        return job
