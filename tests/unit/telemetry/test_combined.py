from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from boxengine.adapters.telemetry.combined import CombinedObserver, CombinedTracer
from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.engine.observation import NullObserver, NullTracer
from boxengine.ports import Observer, Tracer
from tests.unit.telemetry.samples import BOX, EVENTS, item


class Recorder:
    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, event: str) -> Any:
        return lambda *args, **kwargs: self.told.append((event, args, kwargs))


class Broken:
    def __getattr__(self, event: str) -> Any:
        def fail(*args: Any, **kwargs: Any) -> None:
            raise RuntimeError("broken")

        return fail


def test_every_event_of_the_port_is_here() -> None:
    assert set(EVENTS) == {name for name in vars(Observer) if not name.startswith("_")}


@pytest.mark.parametrize("event", EVENTS)
def test_each_observer_is_told_though_one_before_it_raises(event: str, caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()
    args, kwargs = EVENTS[event]
    combined = CombinedObserver([Broken(), NullObserver(), recorder])
    with caplog.at_level(logging.ERROR, "boxengine"):
        for _ in range(3):
            getattr(combined, event)(*args, **kwargs)
    assert recorder.told == [(event, args, kwargs)] * 3
    assert [record.getMessage() for record in caplog.records] == [
        f"Broken raised in {event}(); it will go on being told, but this is said once"
    ]


def test_an_iterator_of_buckets_reaches_every_observer() -> None:
    first, second = Recorder(), Recorder()
    CombinedObserver([first, second]).job_done(BOX, iter([1, 2]), state="processed", seconds=1.0)
    assert first.told == second.told == [("job_done", (BOX, (1, 2)), {"state": "processed", "seconds": 1.0})]


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
        "Broken raised in processing(); this is said once",
        "Broken raised in inject(); this is said once",
    ]


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
