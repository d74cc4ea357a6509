"""The judge finds what it is there to find, and nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.proofs.growing import Growing
from tests.proofs.steady.judge import Phase, Sample, Verdict, Waits, judge
from tests.proofs.steady.receiver import Receiver

STEADY, KEPT_OPEN = Phase(0.0, 10.0), Phase(10.0, 30.0)
MEGABYTE = 1_000_000


def run(
    *,
    wait: float = 0.005,
    slow: int = 0,
    lose: tuple[int, ...] = (),
    most: int = 110,
    rate: float = 250.0,
    problems: tuple[str, ...] = (),
) -> Verdict:
    """Ten transactions of 25 items in each second.

    Args:
        wait: seconds of each.
        slow: so many of those of the second phase wait 30 ms.
        lose: transactions that nobody receives.
        most: megabytes on disk while transactions are open; 100 before.
        rate: that was asked for.
    """
    waits = Waits()
    for number in range(300):
        began = number / 10
        waits.committed(number, began, 25)
        if number not in lose:
            waits.arrived(began + (0.03 if 100 <= number < 100 + slow else wait), 25, [number])
    samples = [Sample(at, MEGABYTE * (100 if at < 10 else most), 0) for at in range(30)]
    return judge(samples, waits, steady=STEADY, kept_open=KEPT_OPEN, rate=rate, problems=problems)


def test_a_run_that_grows_little_waits_little_and_loses_nothing_is_sound() -> None:
    verdict = run()
    assert verdict.problems == []
    assert (round(verdict.growth, 2), round(verdict.p99), verdict.rate) == (1.1, 5, 250.0)


def test_room_beyond_the_steady_state_is_told_of() -> None:
    assert run(most=121).problems == ["it grew to 1.21 of the steady state; at most 1.2 is promised"]


def test_slow_items_are_told_of_once_they_are_more_than_one_in_a_hundred() -> None:
    assert run(slow=1).problems == []
    assert run(slow=4).problems == ["p99 of a fresh item was 30.0 ms; at most 25 ms is promised"]


def test_items_that_were_never_received_are_told_of() -> None:
    assert run(lose=(7,)).problems == [
        "25 items were never received",
        "1 transactions whose last item never came, or that were never committed",
    ]


def test_a_rate_that_was_not_reached_shows_nothing() -> None:
    assert run(rate=270.0).problems == ["only 250 items/s were written, so nothing is shown about 270"]
    assert run(rate=260.0).problems == []


def test_what_went_wrong_on_the_way_is_part_of_the_verdict() -> None:
    assert run(problems=("a worker ended by itself",)).problems == ["a worker ended by itself"]


def test_a_run_that_measured_nothing_has_no_verdict() -> None:
    with pytest.raises(ValueError, match="too short"):
        judge([], Waits(), steady=STEADY, kept_open=KEPT_OPEN, rate=1.0)


def test_an_arrival_may_be_read_before_its_commit() -> None:
    waits = Waits()
    waits.arrived(1.5, 3, [1])
    assert (waits.unmatched(), waits.measured) == (1, [])
    waits.committed(1, 1.0, 3)
    assert (waits.unmatched(), waits.measured) == (0, [(1.0, 0.5)])


def test_the_transport_notes_each_batch_and_the_marked_items_in_it(tmp_path: Path) -> None:
    receiver, arrivals = Receiver(path=str(tmp_path / "arrivals")), Growing(tmp_path / "arrivals")
    payloads = [b"- xxx", b"17 xxx", b"- xxx", b"18 xxx"]
    assert receiver.call_batch([SimpleNamespace(payload=payload) for payload in payloads]) == [True] * 4
    ((at, *fields),) = [line for line in arrivals.lines() if line]
    assert float(at) > 0
    assert fields == [b"4", b"17", b"18"]
    arrivals.close()
