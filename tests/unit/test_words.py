"""Numbers in sentences agree with their nouns."""

from __future__ import annotations

import pytest

from boxengine.domain.words import plural


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (0, "item", "0 items"),
        (1, "item", "1 item"),
        (1, "box", "1 box"),
        (2, "box", "2 boxes"),
        (1204, "pending row", "1,204 pending rows"),
    ],
)
def test_a_number_agrees_with_its_noun(number: int, noun: str, said: str) -> None:
    assert plural(number, noun) == said


def test_what_was_counted_to_a_limit_says_so() -> None:
    assert plural(10_000, "pending row", or_more=True) == "10,000 or more pending rows"
    assert plural(1, "item", or_more=True) == "1 or more items"
