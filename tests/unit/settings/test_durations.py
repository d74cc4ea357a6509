from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxengine.settings import durations


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("P1W", timedelta(weeks=1)),
        ("P1D", timedelta(days=1)),
        ("PT6H", timedelta(hours=6)),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("PT0,5S", timedelta(milliseconds=500)),
        ("PT0S", timedelta(0)),
        ("P1DT2H3M4S", timedelta(days=1, hours=2, minutes=3, seconds=4)),
        ("P1W2D", timedelta(days=9)),
        ("P1Y", timedelta(days=365.2425)),
        ("P12M", timedelta(days=365.2425)),
    ],
)
def test_an_iso_8601_duration_is_read(text: str, length: timedelta) -> None:
    assert durations.parse(text) == length


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1W", "P-1D", "-P1D", "P1H", "PT1D", "P1D ago", "P99999999999Y"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|too long"):
        durations.parse(text)


@pytest.mark.parametrize("text", ["P1W", "P2W", "P1D", "PT6H", "PT0.5S", "PT0S", "P1DT2H3M4.000005S", "PT90S"])
def test_a_duration_is_written_in_its_usual_form(text: str) -> None:
    assert durations.format_iso(durations.parse(text)) == {"PT90S": "PT1M30S"}.get(text, text)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10_000)))
def test_what_is_written_reads_back_the_same(length: timedelta) -> None:
    assert durations.parse(durations.format_iso(length)) == length


def test_a_negative_length_has_no_duration() -> None:
    with pytest.raises(ValueError, match="not negative"):
        durations.format_iso(timedelta(seconds=-1))
