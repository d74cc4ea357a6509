from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from boxengine.adapters.log import LogTransport
from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.telemetry import background, logs
from boxengine.adapters.telemetry.background import BackgroundHandler
from boxengine.adapters.telemetry.log_observer import LogObserver
from boxengine.adapters.telemetry.logs import DEEPEST, LONGEST_TEXT, BoxHandler, Format, report
from boxengine.adapters.telemetry.tags import LogTracer, bound
from boxengine.domain.item import Status
from boxengine.domain.outcome import Discard, DiscardCause, FailedAttempt, Settlement
from boxengine.engine.running.outages import Outages
from boxengine.errors import StoreConflict, Unavailable
from boxengine.ports import events
from boxengine.ports.jobs import JobEnded, JobsLeft
from tests.unit.telemetry.samples import BOX, CIRCUIT, JOB_BOX, item, job

logger = logging.getLogger("boxengine.test")
TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACED = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger("boxengine")
    handlers, level, propagate = list(root.handlers), root.level, root.propagate
    yield
    root.handlers[:], root.propagate = handlers, propagate
    root.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail(message: str) -> None:
    raise ValueError(message)


def test_a_json_line_has_time_level_message_and_tags() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    logger.info("polled %d rows", 3, extra={"box": "order", "bucket": 7, "absent": None})
    (line,) = lines(stream)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "boxengine.test",
        "message": "polled 3 rows",
        "box": "order",
        "bucket": 7,
    }


def test_numbers_in_a_tag_stay_numbers_and_what_json_does_not_know_is_text() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    endless: dict[str, Any] = {}
    endless["again"] = endless
    logger.info(
        "x", extra={"tag": {1: [2, 2.5, True, None, ("a", BOX.type)], "at": Decimal("1.5")}, "endless": endless}
    )
    (line,) = lines(stream)
    assert line["tag"] == {"1": [2, 2.5, True, None, ["a", "outbox"]], "at": "1.5"}
    assert str(line["endless"]).count("again") == DEEPEST


def test_no_tag_hides_a_lines_own_time_or_level_and_every_line_is_json() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    with bound(level="gold", logger="theirs"):
        logger.info("paid", extra={"time": 0.53, "rate": float("nan"), "limits": [float("inf"), 1.5]})
    line = json.loads(stream.getvalue(), parse_constant=refuse)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "boxengine.test",
        "message": "paid",
        "time_": 0.53,
        "level_": "gold",
        "logger_": "theirs",
        "rate": "nan",
        "limits": ["inf", 1.5],
    }


def test_an_exception_is_a_field_of_its_line() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    try:
        fail("two\nlines")
    except ValueError:
        logger.exception("broken")
    (line,) = lines(stream)
    assert line["error"] == "ValueError: two\nlines"
    assert "Traceback" in line["traceback"]


def test_auto_is_text_on_a_terminal_and_json_elsewhere() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    logs.configure(stream=terminal)
    logger.warning("slow", extra={"box": "order"})
    logs.configure(stream=pipe)
    logger.warning("slow", extra={"box": "order"})
    assert terminal.getvalue().rstrip().endswith("WARNING slow box=order")
    assert lines(pipe)[0]["message"] == "slow"


def test_a_traceback_follows_its_line_of_text() -> None:
    stream = io.StringIO()
    logs.configure(format="text", stream=stream)
    try:
        fail("boom")
    except ValueError:
        logger.exception("broken")
    assert "ERROR   broken\nTraceback" in stream.getvalue()


def test_words_of_a_receiver_do_not_steer_the_terminal_and_users_lines_keep_their_colours() -> None:
    stream, own = io.StringIO(), logging.getLogger("shop.shipping")
    handler = logs.configure(format="text", stream=stream)
    logger.warning("item failed: \x1b[2J\u202eevil", extra={"event_key": "a\x07b"})
    own.addHandler(handler)
    try:
        own.warning("\x1b[31mred\x1b[0m")
    finally:
        own.removeHandler(handler)
    ours, theirs = stream.getvalue().splitlines()
    assert ours.endswith("item failed: \\x1b[2J\\u202eevil event_key=a\\x07b")
    assert theirs.endswith("\x1b[31mred\x1b[0m")


def test_configuring_twice_writes_each_line_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.configure(format="json", stream=first)
    logs.configure(format="json", level="WARNING", stream=second)
    logger.info("quiet")
    logger.warning("loud")
    assert first.getvalue() == ""
    assert [line["message"] for line in lines(second)] == ["loud"]
    assert sum(isinstance(handler, BoxHandler) for handler in logging.getLogger("boxengine").handlers) == 1


def test_what_psycopg_ignores_while_an_error_is_on_its_way_is_no_line_of_its_own() -> None:
    stream = io.StringIO()
    handler, driver = logs.configure(format="json", stream=stream), logging.getLogger("psycopg")
    driver.addHandler(handler)
    try:
        driver.warning("error ignored terminating %r: %s", "<psycopg.Pipeline [INERROR]>", "pipeline aborted")
        driver.warning("unknown PostgreSQL timezone: %r; will use UTC", "Mars")
        assert [line["message"] for line in lines(stream)] == ["unknown PostgreSQL timezone: 'Mars'; will use UTC"]
    finally:
        driver.removeHandler(handler)


def test_bound_tags_are_on_every_line_inside_and_a_lines_own_win() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    with bound(box="order", bucket=1):
        with bound(bucket=2):
            logger.info("inner", extra={"box": "own"})
        logger.info("outer")
    logger.info("outside")
    tags = [(line.get("box"), line.get("bucket")) for line in lines(stream)]
    assert tags == [("own", 2), ("order", 1), (None, None)]


def test_a_transports_lines_carry_the_item_they_are_about() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    tracer = LogTracer()
    with tracer.polling(BOX, 4):
        logger.info("poll")
    with tracer.processing(BOX, [item(1), item(2)]):
        with tracer.sending(BOX, "http", [item(1, bucket=5)]):
            logger.info("one")
        with tracer.sending(BOX, "http", [item(1), item(2)]):
            logger.info("many")
    poll, one, many = lines(stream)
    assert (poll["box"], poll["partition"]) == (BOX.name, 4)
    assert (one["box"], one["transport"], one["bucket"], one["item"]) == (BOX.name, "http", 5, 1)
    assert many["transport"] == "http"
    assert "item" not in many


def test_a_line_inside_a_span_carries_its_trace_id() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    provider = TracerProvider(shutdown_on_exit=False)
    with provider.get_tracer("test").start_as_current_span("work") as span:
        logger.info("inside")
    logger.info("outside")
    inside, outside = lines(stream)
    assert inside["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert "trace_id" not in outside


def test_failures_are_warnings_and_only_so_many_per_batch() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    failed = [FailedAttempt(1, Status.FAILED, 3, "12:00 http: refused\nTraceback ...")]
    failed += [FailedAttempt(number, Status.PENDING, 1, "12:00 http: refused") for number in range(2, 12)]
    items = [item(number, bucket=number) for number in range(1, 12)]
    LogObserver(most_items=2).see(events.Settled(BOX, items, Settlement(failed=failed), seconds=0.1))
    first, second, rest = lines(stream)
    assert first["message"] == "item failed for good (attempt 3): 12:00 http: refused"
    assert (first["level"], first["box"], first["bucket"], first["item"]) == ("warning", BOX.name, 1, 1)
    assert second["message"] == "item will be tried again (attempt 1): 12:00 http: refused"
    assert rest["message"] == "9 more items of this batch failed"


def test_a_line_about_one_failed_item_names_the_trace_of_its_creation_and_not_that_of_the_batch() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    items = [item(1, options={"headers": TRACED}), item(2)]
    failed = [FailedAttempt(each.id, Status.PENDING, 1, "12:00 http: refused") for each in items]
    with TracerProvider(shutdown_on_exit=False).get_tracer("test").start_as_current_span("process") as span:
        LogObserver().see(events.Settled(BOX, items, Settlement(failed=failed), seconds=0.1))
    assert [line["trace_id"] for line in lines(stream)] == [TRACE, f"{span.get_span_context().trace_id:032x}"]


def test_every_discard_is_a_line_with_the_reason_up_to_a_number_and_the_rest_one_line() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    log = "12:00 discarded by LatestAvailable: item 9, a later one of its key, was delivered"
    discards = [Discard(number, DiscardCause.OVERTAKEN, 1, log) for number in range(1, 5)]
    items = [item(number) for number in range(1, 5)]
    LogObserver(most_items=1).see(events.Settled(BOX, items, Settlement(discarded=discards), seconds=0.1))
    LogObserver(most_items=2).see(events.DiscardedByHand(BOX, [9, 7, 8]))
    LogObserver().see(events.DiscardedByHand(BOX, [9]))
    first, rest, by_hand, alone = lines(stream)
    assert first["message"] == "item discarded by LatestAvailable: item 9, a later one of its key, was delivered"
    assert (first["level"], first["box"], first["item"], first["cause"]) == ("warning", BOX.name, 1, "overtaken")
    assert rest["message"] == "3 more items of this batch discarded"
    assert (by_hand["message"], by_hand["box"]) == ("3 items discarded by hand, the first: 7, 8", BOX.name)
    assert (alone["message"], alone["box"]) == ("item 9 discarded by hand", BOX.name)


def test_a_settled_batch_is_one_line_at_debug_and_none_above() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    LogObserver().see(events.Settled(BOX, [item(1)], Settlement(delivered=[1]), seconds=0.1))
    assert stream.getvalue() == ""
    logs.configure(format="json", level="DEBUG", stream=stream)
    LogObserver().see(events.Settled(BOX, [item(1)], Settlement(delivered=[1]), seconds=0.1))
    assert lines(stream)[0]["message"] == "batch settled: 1 delivered, 0 failed, 0 discarded of 1 in 0.100 s"


def test_an_outage_that_lasts_for_another_reason_is_told_with_it_once_for_all_it_stops() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    observer = LogObserver()
    for what in ("polling order", "box order"):
        observer.see(events.OutageBegan(what, "terminating connection"))
    for seconds in (1.0, 12.0, 17.0):
        for what in ("polling order", "box order"):
            observer.see(events.OutageLasts(what, seconds=seconds, reason="session is read-only"))
    observer.see(events.OutageLasts("polling order", seconds=20.0, reason="terminating connection"))
    observer.see(events.OutageLasts("polling order", seconds=25.0))
    observer.see(events.OutageEnded("box order", seconds=30.0))
    observer.see(events.OutageEnded("polling order", seconds=30.0))
    assert [line["message"] for line in lines(stream)] == [
        "polling order does not work; retrying with growing pauses: terminating connection",
        "polling order still does not work: session is read-only",
        "polling order works again, after 30.0 s",
    ]


def test_reasons_that_are_never_the_same_do_not_flood_the_log() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    observer = LogObserver()
    observer.see(events.OutageBegan("redis", "attempt 0"))
    for number in range(1, 100):
        observer.see(events.OutageLasts("redis", seconds=10.0 * number, reason=f"attempt {number}"))
    assert len(lines(stream)) == 5


def test_outages_and_recoveries_and_lost_batches_are_said() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="DEBUG", stream=stream)
    observer = LogObserver()
    observer.see(events.OutageBegan("redis", "connection refused"))
    observer.see(events.OutageEnded("redis", seconds=12.34))
    observer.see(events.OutageEnded("heartbeats", seconds=12.34, works=False))
    observer.see(events.FetchFailed(BOX, "lock timeout"))
    observer.see(events.Deleted(BOX, rows=10, seconds=0.5))
    assert [(line["level"], line["message"]) for line in lines(stream)] == [
        ("warning", "redis does not work; retrying with growing pauses: connection refused"),
        ("info", "redis works again, after 12.3 s"),
        ("info", "heartbeats has nothing left to do, after 12.3 s"),
        ("debug", "items could not be read or recorded: lock timeout"),
        ("debug", "retention deleted 10 rows in 0.500 s"),
    ]


def test_items_that_a_middleware_keeps_back_are_said_in_one_line() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    LogObserver().see(events.KeptBack(BOX, items=[item(7), item(8)]))
    (line,) = lines(stream)
    assert line["level"] == "warning"
    assert line["message"].startswith(
        "a middleware did not call call_next() for 2 items: they stay pending, the first is item 7"
    )
    assert line["item"] == 7


def test_a_lone_item_is_not_said_as_if_it_were_many() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    LogObserver().see(events.KeptBack(BOX, items=[item(7)]))
    LogObserver().see(events.OrderViolated(BOX, items=[item(8)]))
    LogObserver().see(events.ForeignJobs(BOX, elements=[b"what"]))
    kept_back, violated, foreign = (line["message"] for line in lines(stream))
    assert kept_back.startswith("a middleware did not call call_next() for item 7 of key 7, which stays pending; ")
    assert violated.startswith("item 8 of key 8 was delivered after a later one of its key: ")
    assert foreign == "the queue held an element that is not a job of this box; dropped it: 'what'"


def test_a_middleware_that_holds_polls_back_is_named_once_for_each_box() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    observer = LogObserver()
    why = "middleware shop.Flag did not call call_next()"
    for partition in (0, 1):
        observer.see(
            events.Throttled(BOX, partition, throttler="middleware", status="skip", seconds=5.0, held_back=why)
        )
        observer.see(events.Throttled(BOX, partition, throttler="rate_limit", status="skip", seconds=5.0))
    assert [(line["level"], line["message"], line["box"]) for line in lines(stream)] == [
        (
            "warning",
            f"{why}: items wait until it lets a poll through; an async def middleware has to await it",
            BOX.name,
        )
    ]


def test_what_stops_several_loops_at_once_is_told_once() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    observer = LogObserver()
    for what in ("poller", "processor", "retention"):
        observer.see(events.OutageBegan(what, "Redis: connection refused"))
    observer.see(events.OutageBegan("polling a", "the database: no such user"))
    for what in ("processor", "poller", "polling a", "retention"):
        observer.see(events.OutageEnded(what, seconds=2))
    observer.see(events.OutageBegan("retention", "Redis: connection refused"))
    assert [line["message"] for line in lines(stream)] == [
        "poller does not work; retrying with growing pauses: Redis: connection refused",
        "polling a does not work; retrying with growing pauses: the database: no such user",
        "poller works again, after 2.0 s; not yet: retention",
        "polling a works again, after 2.0 s",
        "retention works again, after 2.0 s",
        "retention does not work; retrying with growing pauses: Redis: connection refused",
    ]


def test_a_server_that_is_back_is_told_of_in_a_few_short_lines_however_many_boxes_there_are() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    observer = LogObserver()
    boxes = [f"polling {number}" for number in range(200)]
    for what in boxes:
        observer.see(events.OutageBegan(what, "the database: connection refused"))
    for what in boxes[:-1]:
        observer.see(events.OutageEnded(what, seconds=2))
    assert [line["message"] for line in lines(stream)[1:]] == [
        "polling 0 works again, after 2.0 s; not yet: polling 1, polling 2, polling 3, polling 4, polling 5 and 194 more",
        *(
            f"polling {199 - left} works again, after 2.0 s; not yet: "
            f"{', '.join(boxes[200 - left :][:5])}{f' and {left - 5} more' if left > 5 else ''}"
            for left in (99, 49, 24, 12, 6, 3, 1)
        ),
    ]
    observer.see(events.OutageEnded(boxes[-1], seconds=9))
    assert lines(stream)[-1]["message"] == "polling 199 works again, after 9.0 s"


def test_boxes_whose_tables_are_locked_are_named_but_not_hundreds_of_them() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    outages = Outages(observer=LogObserver(), error_tracker=lambda *_error, **_context: None, clock=ManualClock())
    for number in range(200):
        outages.failed(f"box {number}", StoreConflict("deadlock"))  # the first conflict may be over in a moment
        outages.failed(f"box {number}", StoreConflict("somebody has locked the table"))
    assert [line["message"] for line in lines(stream)] == [
        f"box {number} does not work; retrying with growing pauses: somebody has locked the table"
        for number in range(5)
    ]


def test_an_end_is_told_although_what_stopped_first_has_another_reason_now() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    observer = LogObserver()
    for what in ("polling a", "polling b"):
        observer.see(events.OutageBegan(what, "the database: connection refused"))
    observer.see(events.OutageLasts("polling a", seconds=60, reason="the database: no such column"))
    observer.see(events.OutageEnded("polling b", seconds=70))
    assert lines(stream)[-1]["message"] == "polling b works again, after 70.0 s"


def test_a_circuit_that_opens_or_closes_is_said() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    LogObserver().see(events.CircuitChanged(BOX, "kafka", CIRCUIT))
    LogObserver().see(events.CircuitChanged(BOX, "kafka", None))
    assert [(line["level"], line["message"], line["transport"]) for line in lines(stream)] == [
        ("warning", "circuit open: no broker answers; next try after 2026-01-31T12:00:00.000000Z", "kafka"),
        ("info", "circuit closed: items go out again", "kafka"),
    ]


@pytest.mark.parametrize("raised", [ValueError, SystemExit])
@pytest.mark.parametrize("chosen", ["json", "text"])
def test_an_error_whose_text_cannot_be_had_is_logged_all_the_same(chosen: Format, raised: type[BaseException]) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise raised

    stream = io.StringIO()
    logs.configure(format=chosen, stream=stream)
    logs.report(Mute(), box="order")
    assert f"Mute: (says nothing: {raised.__name__})" in stream.getvalue()


@pytest.mark.parametrize("chosen", ["json", "text"])
def test_a_tag_whose_text_cannot_be_had_costs_no_line(chosen: Format) -> None:
    class Detached:
        def __str__(self) -> str:
            raise LookupError

        def __ne__(self, other: object) -> bool:
            raise LookupError

    stream = io.StringIO()
    logs.configure(format=chosen, stream=stream)
    logger.warning("refused", extra={"order": Detached(), "lines": [Detached()]})
    assert "refused" in stream.getvalue()
    assert stream.getvalue().count("(says nothing: LookupError)") == 2


def test_the_default_error_tracker_logs_errors_and_messages_with_their_context() -> None:
    stream = io.StringIO()
    logs.configure(format="json", stream=stream)
    logs.report(ValueError("boom"), box="order", item=7, message="not the line's own")
    logs.report("item failed for good", box="order")
    first, second = lines(stream)
    assert (first["level"], first["message"], first["error"]) == ("error", "ValueError: boom", "ValueError: boom")
    assert (first["box"], first["item"], first["message_"]) == ("order", 7, "not the line's own")
    assert (second["message"], second["box"]) == ("item failed for good", "order")


# ── lines that are long, and lines that nobody reads ─────────────────────────────────────────────────


@pytest.mark.parametrize("layout", ["json", "text"])
def test_a_huge_error_is_cut_and_its_password_is_not_shown(layout: Format) -> None:
    stream = io.StringIO()
    logs.configure(format=layout, stream=stream)
    text = "x" * (LONGEST_TEXT - 50) + " postgres://user:" + "hunter2" * 10 + "@host" + "z" * 5_000_000
    try:
        fail(text)
    except ValueError as error:
        report(error, what="a transport", request="y" * 5_000_000)
    written = stream.getvalue()
    assert len(written) < 100_000
    assert "characters)" in written
    assert "hunter2" not in written
    assert "a transport" in written


class Reader:
    """A pipe whose reader may be slow; text lines through a ``BackgroundHandler``."""

    def __init__(self) -> None:
        self.end, self._start = os.pipe()
        self.handler = BackgroundHandler(self._start)
        self.logger = logging.Logger("boxengine.test")
        self.logger.addHandler(self.handler)

    def read_until(self, text: str) -> str:
        """All that comes until the text does."""
        read = b""
        while text.encode() not in read:
            read += os.read(self.end, 65536)
        return read.decode()

    def close(self) -> None:
        self.handler.close()
        os.close(self.end)
        os.close(self._start)


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.close()


def test_nobody_waits_for_lines_that_are_not_read_and_the_dropped_ones_are_counted(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "MOST_WAITING", 200_000)
    for number in range(10_000):
        reader.logger.warning("line %d %s", number, "x" * 90)
    assert reader.handler.clogged
    text = reader.read_until("missing here")
    reader.logger.warning("and on")
    # Joined first, because what was read may end in the middle of a line.
    read = (text + reader.read_until("and on")).splitlines()
    shown = [line for line in read if line.startswith("line ")]
    missing = sum(int(line.split()[0]) for line in read if "missing here" in line)
    assert 1000 < len(shown) < 9000
    assert len(shown) + missing == 10_000


def test_lines_that_are_read_come_whole_and_in_order(reader: Reader) -> None:
    for number in range(1000):
        reader.logger.warning("line %d", number)
    assert reader.read_until("line 999\n").splitlines() == [f"line {number}" for number in range(1000)]
    assert not reader.handler.clogged


def test_a_line_after_all_handlers_were_closed_is_written(reader: Reader) -> None:
    reader.logger.warning("before")
    reader.handler.close()  # as logging.config does with the handlers that it finds
    reader.logger.warning("after")
    assert reader.read_until("after\n").splitlines() == ["before", "after"]


def test_a_reader_that_has_gone_disturbs_nobody() -> None:
    end, start = os.pipe()
    os.close(end)
    handler = BackgroundHandler(start)
    logger = logging.Logger("boxengine.test")
    logger.addHandler(handler)
    logger.warning("nobody hears this")
    handler.flush()
    assert handler.clogged
    handler.close()
    os.close(start)


@pytest.mark.parametrize("whole", [True, False], ids=["in-batches", "one-by-one"])
def test_the_log_transport_delivers_nothing_that_nobody_reads(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(background, "MOST_WAITING", 200_000)
    transport = LogTransport(logger="boxengine.test.delivered", payload_limit=0)
    logging.getLogger("boxengine.test.delivered").addHandler(reader.handler)
    logging.getLogger("boxengine.test.delivered").setLevel(logging.INFO)

    def deliver() -> None:
        for number in range(10_000):
            if whole:
                transport.call_batch([item(number)])
            else:
                transport(item(number), b"")  # as behind a middleware of items

    try:
        with pytest.raises(Unavailable):
            deliver()
        assert reader.handler.dropped == 0
        reader.read_until("delivered")
    finally:
        logging.getLogger("boxengine.test.delivered").removeHandler(reader.handler)


def test_each_failed_attempt_at_a_job_is_a_line_with_its_reason() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    error = "12:00 reports.export: ValueError: no such region\n  File ..."
    failed = job(7, attempt=2, trace_context=TRACED)
    for end in ("requeued", "failed"):
        LogObserver().see(JobEnded(JOB_BOX, end=end, seconds=1.0, job=failed, error=error))
    for end in ("requeued", "succeeded", "canceled"):  # the first: the handler asked for another attempt
        LogObserver().see(JobEnded(JOB_BOX, end=end, seconds=1.0, job=job(8)))
    reason = "12:00 reports.export: ValueError: no such region"
    assert [line["message"] for line in lines(stream)] == [
        f"job will be tried again (attempt 2): {reason}",
        f"job failed for good (attempt 2): {reason}",
    ]
    tags = {"level": "warning", "box": JOB_BOX.name, "task": "export", "job": 7, "attempt": 2, "trace_id": TRACE}
    assert all(tags.items() <= line.items() for line in lines(stream))


def test_the_jobs_that_a_stopping_worker_leaves_are_named() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    LogObserver().see(JobsLeft(JOB_BOX, jobs=range(1, 8)))
    (line,) = lines(stream)
    assert (line["level"], line["box"]) == ("warning", JOB_BOX.name)
    assert line["message"].startswith("the worker stops while jobs run: 1, 2, 3, 4, 5 and 2 more; ")


def test_the_line_about_a_lost_job_names_it_and_does_not_claim_that_its_handler_was_at_work() -> None:
    stream = io.StringIO()
    logs.configure(format="json", level="INFO", stream=stream)
    LogObserver().see(JobEnded(JOB_BOX, end="lost", seconds=61.04, job=job(7, attempt=2, trace_context=TRACED)))
    (line,) = lines(stream)
    assert (line["level"], line["box"], line["job"], line["seconds"]) == ("warning", JOB_BOX.name, 7, 61.0)
    assert line["trace_id"] == TRACE
    assert line["message"].startswith("a job was lost before its end was recorded (attempt 2): its lease was over, ")
