"""``boxengine create --jsonl`` fed with anything: a bad line is named by its number, and no batch is half written."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boxengine.app.servers.database import connect_store
from boxengine.cli.lines import item_of
from boxengine.cli.streaming import BATCH, BadLine, Stream, Writer
from boxengine.errors import InvalidItem
from tests.integration.engine.rig import BOX, Rig

SLOW_SERVERS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
GOOD = st.integers(0, 10**6).map(lambda key: json.dumps({"event_key": key, "payload": "good"}).encode())
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["\x00", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KEYS = [
    "event_key",
    "payload",
    "payload_base64",
    "event_name",
    "options",
    "uuid",
    "dedup_key",
    "available_at",
    "bucket",
]
OBJECTS = st.dictionaries(
    st.sampled_from([*KEYS, "created_at", "status", "id", "colour"]),
    VALUES | st.sampled_from([10**30, "x" * 300, "2026-01-01", "0001-01-01T00:00:00+23:59", "YQ==", {"headers": [1]}]),
    max_size=5,
).map(lambda item: json.dumps({"event_key": 1, "payload": "x"} | item).encode())
LINES = st.one_of(
    GOOD,
    OBJECTS,
    st.binary(max_size=20),
    st.sampled_from([b"[" * 20_000, b'{"a":' * 20_000, b"9" * 5000, b"{}", b"NaN"]),
).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b""))


@pytest.fixture(params=["postgres_url", "mysql_url"])
def rig(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Iterator[Rig]:
    url = request.getfixturevalue(request.param)
    with Rig(tmp_path, database=url, redis=redis_url) as rig:
        rig.create_tables()
        yield rig


@pytest.fixture
def writer(rig: Rig) -> Iterator[Writer]:
    store = connect_store(rig.boxes.resolved.settings)
    yield Writer(store.engine, lambda connection, items: rig.boxes.create_outbox_batch(connection, BOX, items))
    store.close()


def count(rig: Rig) -> int:
    return int(rig.ask("SELECT count(*) AS n FROM order_outbox_items")[0].n)


def line(**attributes: Any) -> bytes:
    return json.dumps({"event_key": 1, "payload": "x", **attributes}).encode()


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW_SERVERS)
@given(lines=st.lists(LINES, max_size=8))
def test_bad_lines_are_left_out_by_number_and_all_others_are_written(
    rig: Rig, writer: Writer, lines: list[bytes]
) -> None:
    rig.execute("DELETE FROM order_outbox_items")
    told = io.StringIO()
    stream = Stream(writer, skip_bad=True)
    with contextlib.redirect_stderr(told):
        stream.run(io.BytesIO(b"\n".join(lines)), None)
    refused = {int(number) for number in re.findall(r"line (\d+): ", told.getvalue())}
    filled = {number for number, each in enumerate(lines, start=1) if each.strip()}
    assert refused <= filled
    assert (stream.bad, stream.written) == (len(refused), len(filled - refused))
    keys = [json.loads(lines[number - 1]).get("dedup_key") for number in filled - refused]
    assert count(rig) == len({str(key) for key in keys if key is not None}) + keys.count(None)


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW_SERVERS)
@given(before=st.lists(GOOD, max_size=3), bad=LINES, after=st.lists(GOOD, max_size=3))
def test_without_skip_bad_a_bad_line_ends_it_and_nothing_of_its_batch_is_written(
    rig: Rig, writer: Writer, before: list[bytes], bad: bytes, after: list[bytes]
) -> None:
    rig.execute("DELETE FROM order_outbox_items")
    stream = Stream(writer, skip_bad=False)
    lines, complaint = [*before, bad, *after], ""
    try:
        stream.run(io.BytesIO(b"\n".join(lines)), None)
    except BadLine as error:
        complaint = str(error)
    if complaint:
        assert complaint.startswith(f"line {len(before) + 1}: ")
        assert complaint.endswith("; 0 items written, go on from line 1")
        assert (stream.written, count(rig)) == (0, 0)
    else:
        assert stream.written == count(rig) == sum(bool(line.strip()) for line in lines)


@pytest.mark.parametrize("position", [1, 500, BATCH, BATCH + 1, BATCH + 700])
def test_what_only_the_database_refuses_is_found_by_its_line_too(rig: Rig, writer: Writer, position: int) -> None:
    rig.execute(
        "ALTER TABLE order_outbox_items ADD CONSTRAINT small CHECK (event_name IS NULL OR event_name <> 'forbidden')"
    )
    lines = [line()] * (BATCH + 800)
    lines[position - 1] = line(event_name="forbidden")
    stream = Stream(writer, skip_bad=False)
    with pytest.raises(BadLine, match=rf"^line {position}: the database: .*small.*go on from line \d+$"):
        stream.run(io.BytesIO(b"\n".join(lines)), None)
    assert stream.written == count(rig) == (position - 1) // BATCH * BATCH


def test_two_lines_of_a_batch_that_exclude_each_other_cost_only_the_second(rig: Rig, writer: Writer) -> None:
    rig.execute("CREATE UNIQUE INDEX one_uuid ON order_outbox_items (uuid)")
    same = "00000000-0000-0000-0000-00000000000a"
    stream = Stream(writer, skip_bad=True)
    with contextlib.redirect_stderr(io.StringIO()) as told:
        stream.run(io.BytesIO(b"\n".join([line(uuid=same), line(), line(uuid=same)])), None)
    assert told.getvalue().startswith("line 3: the database: ")
    assert (stream.written, stream.bad, count(rig)) == (2, 1, 2)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"[" * 50_000, "nested too deeply"),
        (b'{"event_key": 1, "payload": 1e5, "options": {"x": NaN}}', "NaN is not a JSON number"),
        (b'{"event_key": "\\u0000", "payload": "x"}', "U+0000"),
        (b'{"event_key": "\\ud800", "payload": "x"}', "U+D800"),
        (b'{"event_key": 1, "payload": "\\ud800"}', "surrogates not allowed"),
        (line(event_key={"a": 1}), "event_key must be text or a whole number"),
        (line(uuid="x"), "uuid: badly formed"),
        (line(available_at=5), "available_at"),
        (line(options=[1]), "options must be an object"),
        (b"9" * 5000, "not JSON"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_before_the_database_is_asked(bad: bytes, reason: str) -> None:
    with pytest.raises(InvalidItem, match=re.escape(reason)):
        item_of(bad)


@pytest.mark.parametrize("bucket", [-1, 4, 10**30, "0"])
def test_a_bucket_that_no_worker_looks_into_is_refused(rig: Rig, writer: Writer, bucket: object) -> None:
    stream = Stream(writer, skip_bad=False)
    with pytest.raises(BadLine, match="expected 0 to 3"):
        stream.run(io.BytesIO(line(bucket=bucket)), None)


def test_a_line_that_never_ends_is_one_bad_line_and_the_next_is_read(rig: Rig, writer: Writer) -> None:
    stream = Stream(writer, skip_bad=True)
    with contextlib.redirect_stderr(io.StringIO()) as told:
        stream.run(io.BytesIO(b"x" * (70 << 20) + b"\n" + line()), None)
    assert told.getvalue() == "line 1: longer than 64 MiB\n"
    assert (stream.written, stream.bad) == (1, 1)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_payload_that_is_no_text_is_stored_as_it_is_written(encoding: str) -> None:
    """A number may have more digits than a float holds, or be larger than any."""
    value = '{"amount": 1.000000000000000001,"id":123456789012345678901234567890, "much": 1e400, "who": "\\u00e9é"}'
    written = f'{{"payload": 1, "event_key": 7, "payload" : {value} }}\n'.encode(encoding)
    assert item_of(written)["payload"] == value.encode()


def test_a_payload_that_is_no_text_at_all_is_stored_as_json_that_reads_back(rig: Rig, writer: Writer) -> None:
    value = {"a": ["\x00", "\ud800", 1e300, None, "é"]}
    stream = Stream(writer, skip_bad=False)
    stream.run(io.BytesIO(line(payload=value)), None)
    assert json.loads(bytes(rig.row(1).payload)) == value
