"""Times that depend on one another: none can be changed past what the others allow."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from boxengine.engine.timing import RULES, TIMING, Rule, Timing

# In the order of the rules.
BROKEN: list[dict[str, float]] = [
    {"renewal": 0.5},
    {"fresh": 0.6},
    {"new": 1.5},
    {"failed": 1.0},
    {"stale": 4.0},
    {"by_lease": 1.0},
    {"unnoticed": 1.4},
    {"quick_again": 1.0},
    {"longest_lease": 3.0},
    {"look_again": 2.5},
    {"longest_gap": 0.5},
    {"longest_named_gap": 0.3},
    {"longest_idle": 0.3},
    {"survey": 6.0},
    {"empty": 4.5},
    {"pause_heard": 8.0},
    {"announced": 15.0},
    {"circuits_seen": 10.0},
    {"measured": 20.0},
]


@pytest.mark.parametrize(
    ("changed", "rule"), [pytest.param(*each, id=next(iter(each[0]))) for each in zip(BROKEN, RULES, strict=True)]
)
def test_a_time_that_breaks_a_rule_is_refused_with_the_reason(changed: dict[str, float], rule: Rule) -> None:
    with pytest.raises(ValueError, match=re.escape(rule.reason)):
        replace(TIMING, **changed)


def test_leases_twice_as_long_are_fine() -> None:
    assert replace(TIMING, lease=8.0).lease == 8.0


def test_a_lease_cannot_be_shortened_alone() -> None:
    with pytest.raises(ValueError, match="counting as new"):
        Timing(lease=2.0)
