"""Turns by weight."""

from __future__ import annotations

from collections import Counter

from boxengine.engine.jobs.rotation import Rotation


def turns(rotation: Rotation, weights: dict[str, float], count: int) -> str:
    return "".join(str(rotation.next(weights)) for _ in range(count))


def test_equal_weights_take_turns() -> None:
    played = turns(Rotation(), {"a": 1, "b": 1, "c": 1}, 6)
    assert [set(played[:3]), set(played[3:])] == [{"a", "b", "c"}] * 2


def test_a_weight_of_three_has_three_turns_for_each_of_a_weight_of_one_spread_out() -> None:
    played = turns(Rotation(), {"a": 3, "b": 1}, 40)
    assert Counter(played) == {"a": 30, "b": 10}
    assert "bb" not in played
    assert "aaaa" not in played


def test_whoever_weighs_little_has_a_turn_in_the_end() -> None:
    assert "b" in turns(Rotation(), {"a": 1000, "b": 1}, 1001)


def test_a_name_that_was_away_has_saved_no_turns() -> None:
    rotation = Rotation()
    turns(rotation, {"a": 1, "b": 1}, 3)
    turns(rotation, {"a": 1}, 50)
    assert turns(rotation, {"a": 1, "b": 1}, 4) in ("abab", "baba")


def test_without_names_there_is_no_turn() -> None:
    assert Rotation().next({}) is None
