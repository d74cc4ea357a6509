"""Holds a run to the promises of long jobs, from their tables and the effects alone. It knows nothing of the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, Protocol

from tests.chaos.checker import Injection
from tests.chaos.jobs.record import Effect

SUCCEEDED = "succeeded"
HELD_UP = 0.5
"""Seconds between asking and acting. No lock can prevent an effect of a process that was suspended just there."""
Scope = tuple[str, int | str]
"""What at most one run may have at a time: a job, or a ``lock_key``."""


class JobRow(NamedTuple):
    """One job after the run."""

    id: int
    status: str
    token: int
    chunks: int
    """That it was to write."""


class Chunk(NamedTuple):
    """A row that a handler wrote through its session, and that was committed. In the order in which they were written."""

    job: int
    token: int
    number: int
    key: str | None


class Trace(Protocol):
    """What a run left behind."""

    @property
    def job(self) -> int: ...

    @property
    def token(self) -> int: ...

    @property
    def key(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Findings:
    """One sentence for each thing that is wrong."""

    lost: list[str]
    """Jobs that did not come to their end, or whose end is not what they were to do."""
    at_once: list[str]
    """Two runs of one job or one ``lock_key`` whose effects were not one after the other."""
    zombies: list[str]
    """Writes that counted though the job was another worker's by then."""
    unpreventable: int
    """Effects of a handler that was held up between asking and acting."""


def judge(
    *,
    rows: Sequence[JobRow],
    committed: Collection[int],
    chunks: Sequence[Chunk],
    effects: Sequence[Effect],
) -> Findings:
    """Compares what was created with what was done.

    Args:
        committed: ids of what the application knows to have committed.
    """
    prevented = [effect for effect in effects if effect.at - effect.asked < HELD_UP]
    return Findings(
        lost=list(_lost(rows, committed, chunks)),
        at_once=list(_interleaved(sorted(prevented, key=attrgetter("at")), "effects")),
        zombies=[*_late(rows, chunks), *_interleaved(chunks, "rows")],
        unpreventable=len(effects) - len(prevented),
    )


def reruns(effects: Sequence[Effect], killed: Sequence[Injection]) -> list[float]:
    """Of each job without a ``lock_key`` that a killed worker left behind: seconds from its death to the next run.

    With a key, another job of the key may have its turn first.
    """
    runs: dict[int, list[Effect]] = defaultdict(list)
    for effect in effects:
        if effect.key is None:
            runs[effect.job].append(effect)
    return [
        following.at - injection.begin
        for injection in killed
        for found in runs.values()
        if (following := _next_run(found, injection)) is not None
    ]


def _next_run(effects: Sequence[Effect], injection: Injection) -> Effect | None:
    before = [effect for effect in effects if effect.at <= injection.begin]
    if not before or before[-1].pid not in (injection.victims or ()):
        return None
    return next((effect for effect in effects if effect.token > before[-1].token), None)


def _lost(rows: Sequence[JobRow], committed: Collection[int], chunks: Sequence[Chunk]) -> Iterator[str]:
    written: Mapping[int, list[int]] = defaultdict(list)
    for chunk in chunks:
        written[chunk.job].append(chunk.number)
    known = {row.id for row in rows}
    for job in sorted(set(committed) - known):
        yield f"job {job} was committed, and its row is gone"
    for row in rows:
        if row.status != SUCCEEDED:
            yield f"job {row.id} ended as {row.status}"
        elif written[row.id] != list(range(row.chunks)):
            yield f"job {row.id} was to write {row.chunks} chunks, one after the other, and wrote {written[row.id]}"


def _late(rows: Sequence[JobRow], chunks: Sequence[Chunk]) -> Iterator[str]:
    """Rows under a token that was not the job's any more, as its other rows and its end tell."""
    last = {row.id: row.token for row in rows}
    final: dict[int, Chunk] = {}
    for chunk in chunks:
        final[chunk.job] = chunk
    for job, chunk in final.items():
        if chunk.token != last.get(job):
            yield f"job {job} ended under token {last.get(job)}, and its last row was written under token {chunk.token}"


def _interleaved(traces: Iterable[Trace], what: str) -> Iterator[str]:
    """Of each job and each key: runs that left a trace after another one had begun. ``traces`` are in order."""
    now: dict[Scope, tuple[int, int]] = {}
    over: dict[Scope, set[tuple[int, int]]] = defaultdict(set)
    told = set()
    for trace in traces:
        run = (trace.job, trace.token)
        for scope in _scopes(trace):
            current = now.setdefault(scope, run)
            if run not in over[scope]:
                over[scope].update({current} - {run})
                now[scope] = run
            elif (scope, run) not in told:
                told.add((scope, run))
                yield (
                    f"{scope[0]} {scope[1]}: {what} of job {run[0]} under token {run[1]} came after those of "
                    f"job {current[0]} under token {current[1]} had begun"
                )


def _scopes(trace: Trace) -> Iterator[Scope]:
    yield "job", trace.job
    if trace.key is not None:
        yield "lock_key", trace.key
