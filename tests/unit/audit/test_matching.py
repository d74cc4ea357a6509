"""Rows and messages brought together on disk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from boxengine.adapters.matching import SqliteMatching
from boxengine.errors import BoxError
from boxengine.ports.people.audit import FirstSending, Mismatch, RowTrace, Trace


def uuid(number: int) -> str:
    return str(UUID(int=number))


def row(number: int, *, awaited: bool = True) -> RowTrace:
    return RowTrace(uuid(number), number, awaited, 1000 + number)


def message(number: int, *, partition: int = 0, offset: int = 0, key: bytes | None = b"k") -> Trace:
    return Trace(uuid(number), number, key, partition, offset, 1000 + number)


@pytest.fixture
def matching(tmp_path: Path) -> Iterator[SqliteMatching]:
    made = SqliteMatching(tmp_path)
    yield made
    made.close()


def test_a_row_and_its_one_message_are_no_mismatch(matching: SqliteMatching) -> None:
    matching.add_rows([row(1), row(2, awaited=False)])
    matching.add_messages([message(1)])
    assert list(matching.mismatches()) == []


def test_each_kind_of_mismatch_comes_with_what_is_known_of_it(matching: SqliteMatching) -> None:
    matching.add_rows([row(1), row(3)])
    matching.add_messages([message(2, partition=3, offset=40), message(3, offset=50), message(3, offset=7)])
    by_uuid = {each.uuid: each for each in matching.mismatches()}
    assert by_uuid == {
        uuid(1): Mismatch(uuid(1), 1, True, 0, 0, None, None, 1001, None, None),
        uuid(2): Mismatch(uuid(2), None, False, 1, 1, 2, b"k", 1002, 3, 40),
        uuid(3): Mismatch(uuid(3), 3, True, 2, 1, 3, b"k", 1003, 0, 50),
    }


def test_one_message_in_each_topic_is_no_mismatch_and_two_in_one_of_them_are(matching: SqliteMatching) -> None:
    matching.add_rows([row(1), row(2)])
    both = [message(number)._replace(partition=topic, topic=topic) for number in (1, 2) for topic in (0, 1)]
    matching.add_messages([*both, message(2, offset=7)])
    assert [(each.row_id, each.messages, each.topics) for each in matching.mismatches()] == [(2, 3, 2)]


def test_repetitions_show_that_an_item_arrived_and_nothing_else(matching: SqliteMatching) -> None:
    repeated = [message(number, offset=10 * number)._replace(repetition=True) for number in (1, 2, 9)]
    matching.add_rows([row(1), row(2)])
    matching.add_messages([message(1, offset=1), *repeated])
    by_uuid = {each.uuid: (each.row_id, each.messages, each.offset) for each in matching.mismatches()}
    assert by_uuid == {uuid(9): (None, 0, 90)}
    assert [each.offset for each in matching.first_sendings()] == [1]


def test_two_spellings_of_one_uuid_are_one_and_other_text_is_taken_as_it_is(matching: SqliteMatching) -> None:
    spelt = "0123ABCD-0000-0000-0000-00000000FFFF"
    matching.add_rows([RowTrace(spelt.lower(), 1, True, 0)])
    matching.add_messages([Trace(spelt, 1, b"k", 0, 1, 0), Trace("order-7", 2, b"k", 0, 2, 0)])
    assert [each.uuid for each in matching.mismatches()] == ["order-7"]


def test_first_sendings_come_by_key_and_partition_the_highest_id_first(matching: SqliteMatching) -> None:
    far = 2**40
    matching.add_messages(
        [
            message(1, offset=5),
            message(2, offset=far),
            message(1, offset=9),
            message(3, partition=1, offset=1),
            message(4, key=b"a", offset=2),
            message(5, key=None, offset=3),
            message(6, offset=4)._replace(id=None),
        ]
    )
    assert list(matching.first_sendings()) == [
        FirstSending(b"a", 0, 4, 2),
        FirstSending(b"k", 0, 2, far),
        FirstSending(b"k", 0, 1, 5),
        FirstSending(b"k", 1, 3, 1),
    ]


def test_it_finds_what_counting_in_memory_finds(matching: SqliteMatching) -> None:
    randomness = random.Random(11)
    rows = {number: randomness.random() < 0.7 for number in range(300) if randomness.random() < 0.8}
    sent = [randomness.randrange(300) for _ in range(400)]
    matching.add_rows(row(number, awaited=awaited) for number, awaited in rows.items())
    matching.add_messages(message(number, offset=offset) for offset, number in enumerate(sent))
    expected = {number for number in range(300) if sent.count(number) > 1}
    expected |= {number for number in sent if number not in rows}
    expected |= {number for number, awaited in rows.items() if awaited and number not in sent}
    assert {UUID(each.uuid).int for each in matching.mismatches()} == expected


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    matching = SqliteMatching(tmp_path)
    matching.add_rows([row(1)])
    assert list(tmp_path.iterdir())
    matching.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(BoxError, match="TMPDIR"):
        SqliteMatching(tmp_path / "missing")
