"""Checks jobs, and inserts them through the caller's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeVar

from boxengine.domain.job_attributes import NewJobAttributes
from boxengine.domain.jobs import AfterFailure, JobBox
from boxengine.domain.json_values import json_text
from boxengine.domain.new_values import unknown_attributes
from boxengine.engine.jobs.spans import moment, span
from boxengine.engine.jobs.timing import SHORTEST_LEASE
from boxengine.engine.observation import NullTracer
from boxengine.errors import InvalidItem
from boxengine.ports import Tracer
from boxengine.ports.contracts import ArgsCodec
from boxengine.ports.jobs import NewJob, NewJobs

_T = TypeVar("_T")
LONGEST_TEXT = 255
_LARGEST = 2**31 - 1
_LARGEST_ID = 2**63
_KNOWN = NewJobAttributes.__required_keys__ | NewJobAttributes.__optional_keys__
MOST_PREDECESSORS = 1000
"""Of one job."""


class JobChecks:
    """Checks whether something can be a job of one box."""

    def __init__(
        self, box: JobBox, *, tasks: Collection[str], codecs: Mapping[str, ArgsCodec] = MappingProxyType({})
    ) -> None:
        """Args:
        tasks: those that have handlers; any other is refused.
        codecs: of arguments, by task; of other tasks they are JSON.
        """
        self.box = box
        self._tasks = tasks
        self._codecs = codecs

    def checked(self, given: Mapping[str, Any]) -> NewJob:
        """One of them, ready to be inserted.

        Raises:
            InvalidItem: it cannot be a job.
        """
        if not isinstance(given, Mapping):
            raise self._no_dicts(given)
        unknown = sorted(given.keys() - _KNOWN)
        if unknown:
            raise self._refused(unknown_attributes(unknown, _KNOWN))
        delay, available_at = self._times(given)
        max_attempts = given.get("max_attempts")
        task = self._task(given)
        return NewJob(
            task=task,
            args=self._args(task, given.get("args")),
            max_attempts=self.box.max_attempts
            if max_attempts is None
            else self._whole("max_attempts", max_attempts, 1),
            lease_ttl=self._lease(given.get("lease_ttl")),
            priority=self._whole("priority", given.get("priority", 100), -_LARGEST),
            partition_key=self._text("partition_key", given.get("partition_key", "")) or "",
            available_at=available_at,
            delay=delay,
            after=self._after(given.get("after")),
            after_failure=self._after_failure(given.get("after_failure")),
            idempotency_key=self._key("idempotency_key", given),
            lock_key=self._key("lock_key", given),
            producer=self._key("producer", given),
            consumer_group=self._key("consumer_group", given),
        )

    def _task(self, given: Mapping[str, Any]) -> str:
        task = given.get("task")
        if not isinstance(task, str) or task not in self._tasks:
            known = ", ".join(sorted(self._tasks)) or "none is configured"
            raise self._refused(f"no task {task!r}; known: {known}")
        return task

    def _args(self, task: str, args: Any) -> Any:
        codec = self._codecs.get(task)
        if codec is not None:
            try:
                return codec.encode({} if args is None else args)
            except InvalidItem as error:
                raise self._refused(f"args of {task}: {error}") from error
        try:
            json_text(args)
        except ValueError as error:
            raise self._refused(f"args: expected what JSON can hold: {error}") from None
        return {} if args is None else args

    def _times(self, given: Mapping[str, Any]) -> tuple[timedelta | None, datetime | None]:
        delay, available_at = given.get("delay"), given.get("available_at")
        if delay is not None and available_at is not None:
            raise self._refused("delay and available_at exclude each other")
        return self._within("delay", span, delay), self._within("available_at", moment, available_at)

    def _within(self, name: str, read: Callable[[Any], _T], given: Any) -> _T | None:
        try:
            return None if given is None else read(given)
        except ValueError as error:
            raise self._refused(f"{name}: {error}") from None

    def _after(self, given: Any) -> tuple[int, ...]:
        if given is None:
            return ()
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise self._refused(f"after: expected a list of jobs' ids; got {given!r:.80}")
        listed = tuple(given)
        for each in listed:
            if not isinstance(each, int) or isinstance(each, bool) or not 0 < each < _LARGEST_ID:
                raise self._refused(f"after: expected jobs' ids; got {each!r:.80}")
        ids = tuple(dict.fromkeys(listed))
        if len(ids) > MOST_PREDECESSORS:
            raise self._refused(f"after: {len(ids)} jobs; expected {MOST_PREDECESSORS} at most")
        return ids

    def _after_failure(self, given: Any) -> AfterFailure:
        try:
            return AfterFailure.CANCEL if given is None else AfterFailure(given)
        except ValueError:
            raise self._refused(f"after_failure: expected {' or '.join(AfterFailure)}; got {given!r:.80}") from None

    def _lease(self, given: Any) -> timedelta:
        seconds = self.box.lease_ttl if given is None else given
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if not isinstance(seconds, int | float) or not SHORTEST_LEASE <= seconds <= _LARGEST or seconds != int(seconds):
            raise self._refused(f"lease_ttl: expected whole seconds from {SHORTEST_LEASE:g} up; got {given!r}")
        return timedelta(seconds=seconds)

    def _whole(self, name: str, value: Any, least: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _LARGEST:
            raise self._refused(f"{name}: expected a whole number from {least} to {_LARGEST}; got {value!r}")
        return value

    def _key(self, name: str, given: Mapping[str, Any]) -> str | None:
        value = given.get(name)
        if value == "":
            raise self._refused(f"{name}: expected text that is not empty, or None")
        return self._text(name, value)

    def _text(self, name: str, value: Any) -> str | None:
        if value is not None and (not isinstance(value, str) or len(value) > LONGEST_TEXT or not _storable(value)):
            raise self._refused(
                f"{name}: expected text of at most {LONGEST_TEXT} characters, without NUL and halves of surrogate pairs;"
                f" got {value!r:.80}"
            )
        return value

    def _no_dicts(self, given: object) -> InvalidItem:
        return self._refused(f"expected a list of dicts, one with the attributes of each job; got {given!r:.80}")

    def _refused(self, message: str) -> InvalidItem:
        return InvalidItem(f"box {self.box.name}: {message}")


def _storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return "\0" not in text


class JobCreator(JobChecks):
    """Creates the jobs of one box."""

    def __init__(
        self,
        box: JobBox,
        rows: NewJobs,
        *,
        tasks: Collection[str],
        codecs: Mapping[str, ArgsCodec] = MappingProxyType({}),
        tracer: Tracer | None = None,
    ) -> None:
        """Args:
        tasks: those that have handlers; any other is refused.
        codecs: of arguments, by task; of other tasks they are JSON.
        tracer: names the current trace, which the jobs' attempts continue; None: nobody follows them.
        """
        super().__init__(box, tasks=tasks, codecs=codecs)
        self._rows = rows
        self._tracer = NullTracer() if tracer is None else tracer

    def create(self, session: Any, batch: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids in the order given.

        Raises:
            InvalidItem: one of them cannot be a job. None is inserted then.
        """
        if not isinstance(batch, Iterable):
            raise self._no_dicts(batch)
        jobs = [self.checked(attributes) for attributes in batch]
        if not jobs:
            return []
        with self._tracer.creating(self.box, len(jobs)):
            context = self._tracer.inject({})
            if context:
                jobs = [replace(job, trace_context=context) for job in jobs]
            return self._rows.insert(session, jobs)
