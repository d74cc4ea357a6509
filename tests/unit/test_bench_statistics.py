"""The statistics of the benchmarks: what a line claims must follow from its rounds."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.report import Line, Verdict, at_least, at_most, ratio_line, skipped
from bench.rounds import Comparison, alternate, compare, percentile, spread_of
from bench.subscriptions import holds
from bench.works.subscriptions import CaughtUp, Proof, Witness

rates = st.floats(min_value=1, max_value=1e6)


def test_every_program_runs_once_in_each_round_and_comes_before_and_after_each_other_one() -> None:
    order: list[str] = []

    def program(name: str) -> Callable[[], float]:
        def run() -> float:
            order.append(name)
            return float(len(order))

        return run

    figures = alternate({name: program(name) for name in ("a", "b", "c")}, rounds=3)

    assert order == ["a", "b", "c", "c", "b", "a", "b", "c", "a"]
    assert figures == {"a": [1, 6, 9], "b": [2, 5, 7], "c": [3, 4, 8]}


def test_a_ratio_is_that_of_the_medians_not_the_median_of_the_ratios() -> None:
    result = compare({"floor": [100, 200, 400], "mine": [100, 100, 300]}, ours="mine")

    assert result.ratio == 0.5
    assert (result.ours, result.floor) == (100, 200)


def test_the_spread_is_that_of_the_rounds_side_by_side() -> None:
    result = compare({"floor": [100, 200, 400], "mine": [100, 100, 300]}, ours="mine")

    assert result.spread == (0.5, 1.0)


def test_the_floor_with_the_highest_median_counts_even_if_another_had_the_best_round() -> None:
    figures = {"lucky once": [10, 10, 900], "steady": [50, 50, 50], "mine": [25, 25, 25]}

    result = compare(figures, ours="mine")

    assert result.floor_name == "steady"
    assert result.ratio == 0.5


def test_a_comparison_without_a_floor_is_refused() -> None:
    with pytest.raises(ValueError, match="no floor"):
        compare({"mine": [1.0]}, ours="mine")


def test_rounds_that_somebody_missed_are_refused() -> None:
    with pytest.raises(ValueError, match="argument"):
        compare({"floor": [1.0, 2.0], "mine": [1.0]}, ours="mine")


@given(st.lists(st.tuples(rates, rates), min_size=1))
def test_the_spread_encloses_each_rounds_ratio_and_all_of_them_are_reached_by_some_round(
    rounds: list[tuple[float, float]],
) -> None:
    floor, mine = zip(*rounds, strict=True)
    ratios = [ours / theirs for theirs, ours in rounds]

    result = compare({"floor": floor, "mine": mine}, ours="mine")

    assert result.spread == (min(ratios), max(ratios))


@given(st.lists(st.floats(allow_nan=False), min_size=1), st.floats(min_value=0, max_value=1))
def test_a_percentile_is_a_value_that_its_share_of_all_values_does_not_exceed(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)

    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)


def test_the_median_of_an_even_number_of_values_is_the_lower_middle_one() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0


def test_the_ninety_ninth_percentile_of_a_hundred_values_leaves_out_the_worst() -> None:
    assert percentile([float(number) for number in range(1, 101)], 0.99) == 99.0


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="needs values"):
        percentile([], 0.5)


def test_a_spread_is_lowest_and_highest() -> None:
    assert spread_of([2.0, 1.0, 3.0]) == (1.0, 3.0)


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (Line(work="w", figure=0.9, bar=at_least(0.9)), Verdict.REACHED),
        (Line(work="w", figure=0.899, bar=at_least(0.9)), Verdict.MISSED),
        (Line(work="w", figure=2.0, bar=at_most(2.0)), Verdict.REACHED),
        (Line(work="w", figure=2.001, bar=at_most(2.0)), Verdict.MISSED),
        (Line(work="w", figure=1.0), Verdict.NOTED),
        (skipped("w", "no Java", at_least(0.8)), Verdict.SKIPPED),
    ],
)
def test_a_verdict_follows_from_figure_and_bar(line: Line, verdict: Verdict) -> None:
    assert line.verdict is verdict
    assert line.as_json()["verdict"] == verdict.value


def test_a_line_names_the_floor_it_was_held_against() -> None:
    comparison = compare({"skip locked": [10.0], "own buckets": [20.0], "mine": [10.0]}, ours="mine")

    line = ratio_line("drain", comparison, at_least(0.9))

    assert line.details == {"boxengine items/s": 10.0, "own buckets items/s": 20.0}
    assert line.figure == 0.5


# ── the proof of subscriptions ───────────────────────────────────────────────────────────────────────


def proof(*, ratio: float = 1.0, arrived: int = 3, repeated: int = 0, reordered: int = 0) -> Proof:
    found = Comparison(ratio=ratio, spread=(ratio, ratio), ours=ratio, floor=1.0, floor_name="none")
    caught_up = CaughtUp(expected=3, arrived=arrived, repeated=repeated, reordered=reordered, rate=1.0)
    return Proof(whole=found, late=found, waiting=3, caught_up=caught_up)


def test_the_proof_of_subscriptions_holds_only_if_nothing_is_slow_lost_repeated_or_out_of_order() -> None:
    assert holds(proof())
    assert not holds(proof(ratio=0.94))
    assert not holds(proof(arrived=2))
    assert not holds(proof(repeated=1))
    assert not holds(proof(reordered=1))


def test_the_witness_notes_an_item_that_comes_twice_or_after_a_later_one_of_its_key() -> None:
    Witness.forget()
    Witness().call_batch([SimpleNamespace(id=id_, event_key=key) for id_, key in [(1, "a"), (3, "a"), (2, "b")]])
    assert (len(Witness.ids), Witness.repeated, Witness.reordered) == (3, 0, 0)
    Witness().call_batch([SimpleNamespace(id=id_, event_key="a") for id_ in (2, 4, 5)])
    assert (len(Witness.ids), Witness.repeated, Witness.reordered) == (5, 1, 1)
