"""What the benchmarks make of their figures."""

from __future__ import annotations

import pytest

from bench.rounds import alternate, compare


def test_every_program_runs_once_a_round_and_none_is_always_first() -> None:
    order: list[str] = []

    def program(name: str) -> float:
        order.append(name)
        return float(len(order))

    figures = alternate({"a": lambda: program("a"), "b": lambda: program("b")}, rounds=4)
    assert order == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert figures == {"a": [1.0, 4.0, 5.0, 8.0], "b": [2.0, 3.0, 6.0, 7.0]}


def test_boxengine_is_held_against_the_faster_floor_by_medians() -> None:
    line = compare("work", 0.9, [[100.0, 90.0, 110.0], [50.0, 500.0, 60.0]], [80.0, 95.0, 200.0])
    assert line.floor == 100.0
    assert line.ratio == pytest.approx(0.95)
    assert list(line.spread) == pytest.approx([0.8, 200 / 110])
    assert line.reached


def test_a_ratio_below_the_bar_is_missed() -> None:
    assert not compare("work", 0.9, [[100.0]], [89.0]).reached
