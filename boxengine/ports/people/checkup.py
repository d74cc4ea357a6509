"""Results of a check of the servers: facts that are as they should be, and findings that need action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from boxengine.domain.box import Box


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """The result of one check."""

    area: str
    """database, jobs, redis, kafka, http or boxengine."""
    text: str
    advice: str | None = None
    """What to do about it; None: nothing, all is well."""
    box: str | None = None
    alarming: bool = False
    """Whether people should see it without asking."""
    stops: bool = False
    """Whether nothing is delivered meanwhile."""

    @property
    def is_finding(self) -> bool:
        return self.advice is not None


class Checkup(Protocol):
    """Checks one kind of server. Raises ``Unavailable`` if it does not answer."""

    def remarks(self, boxes: Sequence[Box]) -> list[Remark]:
        """The results of all checks."""
