"""A worker process under a parent, as ``--processes`` starts them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from boxengine.cli.signals import StopRequest, let_through, stop_request, stop_with_parent


@dataclass(frozen=True, slots=True)
class Child:
    """What this process gets from its parent."""

    ledger: Path
    """The file in which this process keeps its numbers for the parent."""
    request: StopRequest

    @classmethod
    def at(cls, ledger: str | None) -> Child | None:
        """This process as a child; None: it has no parent.

        Call this before anything else: it lets the signals through that the parent has blocked until the child can stop
        cleanly.
        """
        if ledger is None:
            return None
        request = stop_request()
        stop_with_parent(request)
        let_through()
        return cls(Path(ledger), request)

    @property
    def place(self) -> str:
        """Which of several identical processes this is. After a restart its successor has the same place."""
        return self.ledger.stem.partition(".")[0]

    @property
    def speaks_for_all(self) -> bool:
        """Whether this child logs what all children would log alike: only the first one does, at its first start."""
        return self.ledger.stem == "1"
