"""How hints of new rows are written and read."""

from __future__ import annotations

import pytest

from boxengine.ports import Signal
from boxengine.ports.coordination.wakeups import MOST_NAMED


def test_buckets_of_one_box_travel_together_each_once() -> None:
    signals = [Signal("b", 3), Signal("a", None), Signal("b", 12), Signal("b", 3), Signal("b", 4, due=False)]
    assert Signal.encode_all(signals) == ["b:3,12", "a", "b:4?"]


def test_very_many_buckets_take_several_messages_none_longer_than_a_notification_may_be() -> None:
    signals = [Signal("b" * 63, 900_000_000 + bucket) for bucket in range(2 * MOST_NAMED + 1)]
    texts = Signal.encode_all(signals)
    assert len(texts) == 3
    assert max(map(len, texts)) < 8000
    assert [signal for text in texts for signal in Signal.decode(text)] == signals


@pytest.mark.parametrize(
    ("text", "signals"),
    [
        ("b:3,12", [Signal("b", 3), Signal("b", 12)]),
        ("b:3,12?", [Signal("b", 3, due=False), Signal("b", 12, due=False)]),
        ("b:7", [Signal("b", 7)]),
        ("b:again", [Signal("b", None, again=True)]),
        ("b:c:7", [Signal("b:c", 7)]),
    ],
)
def test_what_a_message_says(text: str, signals: list[Signal]) -> None:
    assert Signal.decode(text) == signals


@pytest.mark.parametrize("text", ["b:", "b:,", "b:3,", "b:3,x", "b:-1", "b:3?,4", "b:\u0663", "b:1234567890", "x", ""])
def test_a_foreign_message_names_a_box_that_nobody_knows(text: str) -> None:
    assert Signal.decode(text) == [Signal(text, None)]
