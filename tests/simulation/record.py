"""What happened in one history, for the checker and for the reader: nothing here knows the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from boxengine.adapters.memory.rows import Row
from boxengine.domain.box import Box


@dataclass(slots=True, eq=False)
class ClaimRecord:
    """One claim, from its opening to its end."""

    worker: str
    box: str
    opened: int
    """Step."""
    now: datetime
    """The store's clock when it was opened."""
    items: Sequence[int]
    committed: bool = False
    """Whether its outcomes were written; the worker may have been told otherwise."""
    fault: str = ""
    """Why it was not, or why its worker does not know."""
    failures: set[int] = field(default_factory=set)
    """Items of which an attempt failed: refused, raised, or taken and then raised."""
    refused: set[int] = field(default_factory=set)
    """Items whose attempt failed by itself, not with a batch that raised and may be sent again in parts."""
    batch_raised: bool = False
    cut: bool = False
    """A call was cancelled because the batch had no more time."""
    asked_again: bool = False
    """It asked for a bucket that the database had refused to the same hold."""
    calls_of_a_paused_box: int = 0
    """Calls of transports begun when every worker had had the time to hear of the pause."""
    late_calls: int = 0
    """Calls of transports begun after the leases had run out, or long after somebody else had them."""


@dataclass(slots=True, eq=False)
class Send:
    """One item that reached a transport's receiver."""

    step: int
    place: int
    """In the order of all sends of the history."""
    claim: ClaimRecord
    transport: str
    item: int
    transactional: bool = False
    """It counts only if the claim is committed: the transport wrote through the claim's session."""
    acknowledged: bool = False
    """The transport returned success to the engine."""


@dataclass(slots=True, eq=False)
class Change:
    """A committed change of a row."""

    step: int
    at: float
    box: str
    by: str
    """engine, writer, operator, retention, or the fault that is named so."""
    claim: ClaimRecord | None
    before: Row | None
    after: Row | None


@dataclass(slots=True, eq=False)
class Alone:
    """One item that a worker has noted as the only one it sends."""

    worker: str
    box: str
    item: str
    """Its id."""
    step: int
    over: int | None = None
    """The step at which the worker has taken the note back, or meant to."""


@dataclass(slots=True, eq=False)
class Record:
    """Everything, in order."""

    tracing: bool = False
    step: int = 0
    now: float = 0.0
    boxes: dict[str, Box] = field(default_factory=dict)
    routes: dict[str, dict[str | None, tuple[str, ...]]] = field(default_factory=dict)
    """By box and event name, the names of the transports an item must reach."""
    latest_available: set[str] = field(default_factory=set)
    """Boxes that discard what a later item has overtaken."""
    rows_per_claim: dict[str, int] = field(default_factory=dict)
    tactic: str = ""
    transport_time: float = 0.0
    """Longest time in seconds of a call where nothing is wrong."""
    long_queues: bool = False
    """Whether a queue may be too long for what a thread hands back."""
    lease_ttl: float = 0.0
    """Seconds."""
    holders: dict[tuple[str, int], tuple[str, float]] = field(default_factory=dict)
    """By box and bucket, the token of the hold that took it last, and when."""
    paused_since: dict[str, float] = field(default_factory=dict)
    """By name of each box that is paused now, virtual seconds."""
    claims: list[ClaimRecord] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    effects: list[tuple[str, str, int]] = field(default_factory=list)
    """Box, transport and item of what transports wrote through the claim's session and was committed."""
    written: dict[tuple[str, int], int] = field(default_factory=dict)
    """By box and id, the step at which an item of a log box was written; it is committed later, or never."""
    poisoned: set[tuple[str, int]] = field(default_factory=set)
    """Box and id of items that no transport ever takes."""
    undone: list[tuple[int, int]] = field(default_factory=list)
    """The steps of each dump that was restored, and of its restoration: what was committed between them is gone."""
    killing: set[tuple[str, int]] = field(default_factory=set)
    """Box and id of items that end every process that sends them."""
    killed_by: list[tuple[str, int]] = field(default_factory=list)
    """Box and id of the item, for each process that an item ended."""
    alone: list[Alone] = field(default_factory=list)
    died: dict[str, int] = field(default_factory=dict)
    """By worker, the step at which its process was gone."""
    faults: dict[str, int] = field(default_factory=dict)
    ways: Counter[str] = field(default_factory=Counter)
    """How often threads came by their buckets in which way."""
    errors: list[str] = field(default_factory=list)
    """What the engine raised that no fault explains."""
    trace: list[str] = field(default_factory=list)

    def note(self, who: str, what: str) -> None:
        """One line of the trace."""
        if self.tracing:
            self.trace.append(f"{self.step:6} {self.now:9.4f}s  {who:<16} {what}")

    def fault(self, kind: str, who: str, detail: str = "") -> None:
        """Counts an injected fault."""
        self.faults[kind] = self.faults.get(kind, 0) + 1
        self.note(who, f"*** {kind} {detail}")
