"""The pure rules: buckets, pauses, jobs, headers. Expected values follow from sbmt-outbox's own arithmetic."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxengine.domain import partitioning
from boxengine.domain.box import Backoff
from boxengine.domain.item import Item, rfc3339
from boxengine.domain.job import Job
from tests.unit.engine.bench import make_box

MOMENT = datetime(2026, 2, 3, 4, 5, 6, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("key", "size", "bucket"),
    [
        (42, 16, 10),
        ("42", 16, 10),
        (-5, 16, 11),  # Ruby's modulo takes the divisor's sign, as Python's
        ("-5", 16, 5),
        ("order-42/7", 16, 427 % 16),
        ("no digits", 16, 0),
        ("", 16, 0),
        ("6f9619ff-8b86-d011-b42d-00c04fc964ff", 256, 69619886011420004964 % 256),
        ("\N{ARABIC-INDIC DIGIT THREE}4", 16, 4),  # Ruby's \d knows 0 to 9 only
        (10**30, 7, 10**30 % 7),
    ],
)
def test_the_number_strategy_takes_the_digits_modulo_the_bucket_size(key: Any, size: int, bucket: int) -> None:
    assert partitioning.number(key, size) == bucket


@given(st.text(), st.integers(1, 1000))
def test_the_number_strategy_agrees_with_the_references_expression(key: str, size: int) -> None:
    assert partitioning.number(key, size) == int(re.sub(r"[^0-9]", "", key) or "0") % size


@given(st.text(st.characters(codec="utf-8")), st.integers(1, 1000))
def test_the_hash_strategy_is_sha1_as_one_big_number(key: str, size: int) -> None:
    assert partitioning.hashed(key, size) == int(hashlib.sha1(key.encode()).hexdigest(), 16) % size


def test_the_hash_strategy_hashes_a_numbers_text() -> None:
    assert (
        partitioning.hashed(42, 16)
        == partitioning.hashed("42", 16)
        == int("92cfceb39d57d914ed8b14d0e37643de0797ae56", 16) % 16
    )


@pytest.mark.parametrize(
    ("errors", "seconds"), [(0, 0), (1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (8, 600), (5000, 600)]
)
def test_pauses_grow_by_the_multiplier_up_to_the_maximum(errors: int, seconds: float) -> None:
    assert Backoff().delay(errors) == timedelta(seconds=seconds)


def test_a_multiplier_that_overflows_a_float_gives_the_maximum() -> None:
    assert Backoff(multiplier=1e300).delay(50) == timedelta(seconds=600)


@given(st.integers(1, 30), st.integers(1, 2**62), st.floats(0, 1))
def test_jitter_only_shortens_a_pause_and_by_its_share_at_most(errors: int, item_id: int, jitter: float) -> None:
    backoff = Backoff(jitter=jitter)
    assert backoff.delay(errors) * (1 - jitter) <= backoff.pause(errors, item_id) <= backoff.delay(errors)


def test_a_box_has_its_buckets_in_partitions_by_modulo() -> None:
    box = make_box(bucket_size=10)
    assert list(box.partition(1, 4)) == [1, 5, 9]
    assert sorted(bucket for number in range(4) for bucket in box.partition(number, 4)) == list(box.buckets)


@pytest.mark.parametrize(
    ("retries", "errors", "over"), [(0, 1, True), (2, 2, False), (2, 3, True), (None, 10**6, False)]
)
def test_an_item_is_failed_once_its_errors_exceed_the_retries(retries: int | None, errors: int, over: bool) -> None:
    assert make_box(max_retries=retries).exhausted(errors) is over


@given(st.integers(0, 10**6), st.integers(0, 2**40), st.lists(st.integers(1, 2**63), min_size=1))
def test_a_job_reads_back_as_it_was_written(bucket: int, at: int, ids: list[int]) -> None:
    job = Job(bucket, at, tuple(ids))
    assert Job.decode(job.encode()) == Job.decode(job.encode().encode()) == job


def test_a_job_has_the_references_format() -> None:
    assert Job(3, 1_700_000_000, (5, 7)).encode() == "3:1700000000:5,7"


@given(st.binary() | st.text() | st.from_regex(r"\A-?\d+:\d*:[\d,]*(:.*)?\Z"))
def test_whatever_lies_in_the_queue_is_a_sound_job_or_refused(element: bytes | str) -> None:
    try:
        job = Job.decode(element)
    except ValueError:
        return
    assert job.bucket >= 0
    assert job.ids
    assert min(job.ids) > 0
    assert Job.decode(job.encode()) == job


def item(**fields: Any) -> Item:
    values: dict[str, Any] = {
        "id": 7,
        "uuid": "u-7",
        "event_name": None,
        "event_key": "k",
        "bucket": 1,
        "status": 0,
        "raw_options": None,
        "payload": b"",
        "errors_count": 0,
        "raw_created_at": MOMENT,
        "processed_at": None,
        "box": make_box(),
        "dispatched_at": MOMENT + timedelta(seconds=1),
        **fields,
    }
    return Item(**values)


def test_the_engines_headers_name_the_box_the_item_and_its_times() -> None:
    assert item().headers == {
        "Outbox-Name": "order_outbox_item",
        "Idempotency-Key": "u-7",
        "Sequence-ID": "7",
        "Created-At": "2026-02-03T04:05:06.123456Z",
        "Dispatched-At": "2026-02-03T04:05:07.123456Z",
    }


def test_an_items_own_headers_stand_over_the_engines_and_are_text() -> None:
    headers = item(raw_options='{"headers": {"Outbox-Name": "mine", "x": 1}}').headers
    assert (headers["Outbox-Name"], headers["x"], headers["Sequence-ID"]) == ("mine", "1", "7")


@pytest.mark.parametrize("raw", [None, "{}", {}, '{"key": "1"}', {"key": "1"}])
def test_options_are_a_dict_however_the_row_has_them(raw: Any) -> None:
    assert item(raw_options=raw).options == ({"key": "1"} if raw and raw != "{}" else {})


def test_moments_are_written_in_utc_and_without_a_zone_taken_for_it() -> None:
    assert rfc3339(MOMENT.replace(tzinfo=None)) == rfc3339(MOMENT)
    assert rfc3339(MOMENT.astimezone(timezone(timedelta(hours=5)))) == "2026-02-03T04:05:06.123456Z"
    assert rfc3339(MOMENT.replace(microsecond=0)) == "2026-02-03T04:05:06.000000Z"
