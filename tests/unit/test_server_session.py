"""Shared servers are started once, asked for over the desk, and stopped at the end."""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from pathlib import Path

from boxengine.embedded import ServerNotStarted
from tests.servers.databases import numbered
from tests.servers.desk import Desk, ask
from tests.servers.offer import How, Offer
from tests.servers.session import FirstOf, ServerSession


class _Recorded:
    """A source that counts its starts and stops."""

    def __init__(self, how: How = How.STARTED, *, turns_out: How | None = None) -> None:
        self._offer = Offer("kafka", how, f"{how.value}-{turns_out}")
        self._turns_out = turns_out
        self.starts = 0
        self.stops = 0

    def offer(self) -> Offer:
        return self._offer

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        assert folder.is_dir()
        self.starts += 1
        if self._turns_out is How.BROKEN:
            raise ServerNotStarted("exit code 1")
        stack.callback(self._stop)
        return Offer("kafka", self._turns_out or self._offer.how, "running", f"address {self.starts}")

    def _stop(self) -> None:
        self.stops += 1


def test_many_workers_that_ask_at_once_get_one_server() -> None:
    source = _Recorded()
    session = ServerSession({"kafka": source})
    answers: list[Offer] = []
    with closing(session), closing(Desk(session)) as desk:
        workers = [threading.Thread(target=lambda: answers.append(ask(desk.ticket, "kafka"))) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert {answer.address for answer in answers} == {"address 1"}
    assert (len(answers), source.starts, source.stops) == (8, 1, 1)


def test_offers_start_nothing_and_an_absent_server_is_not_started() -> None:
    source = _Recorded(How.ABSENT)
    with closing(ServerSession({"kafka": source})) as session:
        assert session.offers()["kafka"].how is How.ABSENT
        assert session.obtain("kafka").how is How.ABSENT
    assert source.starts == 0


def test_a_server_that_does_not_start_is_broken_and_not_tried_again() -> None:
    source = _Recorded(turns_out=How.BROKEN)
    with closing(ServerSession({"kafka": source})) as session:
        assert session.obtain("kafka").how is How.BROKEN
        assert session.obtain("kafka").detail == "exit code 1"
    assert source.starts == 1


def test_the_next_source_stands_in_where_the_first_turns_out_to_be_absent(tmp_path: Path) -> None:
    real, mock = _Recorded(turns_out=How.ABSENT), _Recorded(How.MOCK)
    first = FirstOf("kafka", [real, mock])
    assert first.offer().how is How.STARTED
    with ExitStack() as stack:
        assert first.start(tmp_path, stack).how is How.MOCK


def test_where_every_source_is_absent_all_reasons_are_told() -> None:
    offer = FirstOf("kafka", [_Recorded(How.ABSENT), _Recorded(How.ABSENT)]).offer()
    assert (offer.how, offer.detail) == (How.ABSENT, "absent-None; absent-None")


def test_workers_get_neighbouring_databases_of_a_given_redis() -> None:
    assert numbered("redis://:secret@example.org:6380/5?timeout=3", 2) == "redis://:secret@example.org:6380/7?timeout=3"
    assert numbered("redis://example.org", 1) == "redis://example.org/1"
