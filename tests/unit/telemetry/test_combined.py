from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import FrozenInstanceError, fields
from typing import Any, get_args

import pytest

from boxengine.adapters.telemetry.combined import CombinedObserver, CombinedTracer
from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.engine.observation import NullObserver, NullTracer
from boxengine.ports import Around, Tracer
from boxengine.ports.events import Event
from tests.unit.telemetry.samples import BOX, EVENTS, item


class Recorder:
    def __init__(self) -> None:
        self.seen: list[Event] = []

    def see(self, event: Event) -> None:
        self.seen.append(event)


class Broken:
    def __getattr__(self, name: str) -> Any:
        def fail(*args: Any, **kwargs: Any) -> None:
            raise RuntimeError("broken")

        return fail


def kind(event: Event) -> str:
    return type(event).__name__


def test_every_event_of_the_port_is_here() -> None:
    assert sorted(map(kind, EVENTS)) == sorted(each.__name__ for each in get_args(Event))


@pytest.mark.parametrize("event", EVENTS, ids=kind)
def test_each_observer_is_told_though_one_before_it_raises(event: Event, caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()
    combined = CombinedObserver([Broken(), NullObserver(), recorder])
    with caplog.at_level(logging.ERROR, "boxengine"):
        for _ in range(3):
            combined.see(event)
    assert recorder.seen == [event] * 3
    assert [record.getMessage() for record in caplog.records] == [
        f"Broken raised on {kind(event)}; it still receives events, but this is logged only once"
    ]


@pytest.mark.parametrize("event", EVENTS, ids=kind)
def test_no_observer_can_change_what_the_next_one_is_told(event: Event) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(event, fields(event)[0].name, None)


class Note(NullTracer):
    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes

    def inject(self, headers: dict[str, str]) -> dict[str, str]:
        return {**headers, self.name: "here"}

    def processing(self, box: Box, items: Sequence[Item]) -> AbstractContextManager[object]:
        @contextmanager
        def context() -> Any:
            self.notes.append(f"{self.name} in")
            try:
                yield
            finally:
                self.notes.append(f"{self.name} out")

        return context()


def test_tracers_are_nested_in_order_and_a_broken_one_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    notes: list[str] = []
    broken: Any = Broken()
    tracer: Tracer = CombinedTracer([Note("a", notes), broken, Note("b", notes)])
    with caplog.at_level(logging.ERROR, "boxengine"):
        for _ in range(2):
            with tracer.processing(BOX, [item(1)]):
                notes.append("work")
        assert tracer.inject({}) == {"a": "here", "b": "here"}
    assert notes == ["a in", "b in", "work", "b out", "a out"] * 2
    assert [record.getMessage() for record in caplog.records] == [
        "Broken raised in processing(); this is logged only once",
        "Broken raised in inject(); this is logged only once",
    ]


class Follower(NullTracer):
    """Follows what is sent, and nothing else."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes

    @contextmanager
    def sending(self, box: Box, transport: str, items: Sequence[Item]) -> Iterator[None]:
        self.notes.append(f"{self.name} {transport} {[item.id for item in items]}")
        yield


class RaisesEach(NullTracer):
    def sending_each(self, box: Box, transport: str) -> Around | None:
        def fail(_item: Item) -> AbstractContextManager[object]:
            raise RuntimeError("broken")

        return fail


@pytest.mark.parametrize(("names", "told"), [("", []), ("a", ["a http [7]"]), ("ab", ["a http [7]", "b http [7]"])])
@pytest.mark.parametrize("broken", [None, Broken(), RaisesEach()], ids=["none", "at once", "at each item"])
def test_items_sent_one_by_one_are_followed_by_each_tracer_that_can(
    names: str, told: list[str], broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    notes: list[str] = []
    followers: list[Tracer] = [Follower(name, notes) for name in names]
    each = CombinedTracer([NullTracer(), *([] if broken is None else [broken]), *followers]).sending_each(BOX, "http")
    if each is None:
        assert not followers
        assert not isinstance(broken, RaisesEach)
    for _ in range(2):
        with nullcontext() if each is None else each(item(7)):
            notes.append("work")
    assert notes == [*told, "work"] * 2
    assert len(caplog.records) == (broken is not None)


def test_the_works_own_error_passes_through_the_tracers() -> None:
    notes: list[str] = []

    def work() -> None:
        with CombinedTracer([Note("a", notes), NullTracer()]).processing(BOX, [item(1)]):
            raise ValueError("the work's own")

    with pytest.raises(ValueError, match="the work's own"):
        work()
    assert notes == ["a in", "a out"]


def test_null_tracer_and_observer_do_nothing() -> None:
    tracer: Tracer = NullTracer()
    headers = {"a": "b"}
    assert tracer.inject(headers) is headers
    for context in (
        tracer.creating(BOX, 1),
        tracer.polling(BOX, 1),
        tracer.processing(BOX, []),
        tracer.sending(BOX, "kafka", []),
    ):
        with context:
            pass
