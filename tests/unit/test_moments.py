"""Which moments a new item or job may have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest

from boxengine.domain.new_values import check_values
from boxengine.engine.jobs.spans import moment
from boxengine.errors import InvalidItem

EAST, WEST = (timezone(timedelta(hours=hours)) for hours in (5, -5))


class Unset(tzinfo):
    """A zone that does not say how far it is from UTC."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (datetime(2026, 1, 1, tzinfo=Unset()), "available_at: expected a datetime with a zone"),
        (datetime.max.replace(tzinfo=WEST), "available_at: expected a moment from the year 1 to 9999 in UTC"),
        (datetime.min.replace(tzinfo=EAST), "available_at: expected a moment from the year 1 to 9999 in UTC"),
    ],
)
def test_a_moment_that_has_no_date_in_utc_is_refused_before_a_driver_meets_it(given: datetime, expected: str) -> None:
    with pytest.raises(InvalidItem, match=expected):
        check_values("box", [{"available_at": given}])
    with pytest.raises(ValueError, match=r"expected a (datetime with a zone|moment from)"):
        moment(given)


@pytest.mark.parametrize("given", [datetime.max.replace(tzinfo=UTC), datetime.max.replace(tzinfo=EAST)])
def test_the_last_moments_that_have_a_date_in_utc_are_taken(given: datetime) -> None:
    check_values("box", [{"available_at": given}])
