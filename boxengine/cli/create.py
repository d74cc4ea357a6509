"""``boxengine create``: inserts items, one from options or many from JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxengine.cli.arguments import BoxName
from boxengine.cli.context import connect_to_jobs, globals_of, notes, output
from boxengine.cli.ids import ids_in
from boxengine.cli.lines import job_of
from boxengine.cli.streaming import Item, Stream, Writer, opened
from boxengine.domain.box import BoxType
from boxengine.domain.jobs import AfterFailure
from boxengine.domain.words import plural
from boxengine.errors import BadUsage, BoxError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from boxengine.app.boxes import Boxes

_OF_ITEMS = ("event_key", "payload", "payload_file", "event_name")
_OF_JOBS = ("args", "lock_key", "idempotency_key", "priority", "delay", "after", "after_failure")
"""Options of a single job; ``--task`` applies to lines, too."""


def create(
    context: typer.Context,
    box: BoxName,
    event_key: Annotated[str | None, typer.Option("--event-key", help="What the item is about; its order key.")] = None,
    payload: Annotated[str | None, typer.Option("--payload", help="The payload as text.")] = None,
    payload_file: Annotated[Path | None, typer.Option("--payload-file", help="Or a file that holds it.")] = None,
    event_name: Annotated[str | None, typer.Option("--event-name", help="What happened.")] = None,
    *,
    jsonl: Annotated[
        str | None, typer.Option("--jsonl", help="A file of JSON lines, one item or job each, or - for standard input.")
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="Of a job: which handler runs it.")] = None,
    args: Annotated[str | None, typer.Option("--args", help="Of a job: JSON.")] = None,
    lock_key: Annotated[
        str | None, typer.Option("--lock-key", help="Of a job: only one job with the same key runs at a time.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="Of a job: a second job with the same key is not stored.")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="Of a job: lower goes first.")] = 100,
    delay: Annotated[float | None, typer.Option("--delay", min=0, help="Of a job: seconds before it may run.")] = None,
    after: Annotated[
        str | None,
        typer.Option("--after", help="Of a job: ids of jobs that must have succeeded before it starts: 1,2,3."),
    ] = None,
    after_failure: Annotated[
        AfterFailure,
        typer.Option(
            "--after-failure", help="Of a job: what happens to it when one of the jobs in --after does not succeed."
        ),
    ] = AfterFailure.CANCEL,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report bad lines and go on.")] = False,
) -> None:
    """Put items into an outbox or an inbox, or a job into a box of long jobs.

    A JSON line is an object with event_key and payload (text, or any JSON value, which is stored as it is written; or
    payload_base64). Optional are event_name, options, uuid, dedup_key and available_at. Lines are written 1,000 to a
    transaction. A bad line ends the command before the line's batch is written; earlier batches are written. A line for a
    box of long jobs has task (or --task gives it), and the other arguments of create_job.

    Examples: boxengine create order_outbox_item --event-key 42 --payload '{"id": 42}';
    boxengine create order_outbox_item --jsonl items.jsonl; boxengine create report_job --task export --args '{"day": 1}';
    boxengine create report_job --jsonl jobs.jsonl; boxengine create report_job --task send --after 1,2
    """
    boxes = globals_of(context).boxes()
    if jsonl is not None:
        _refuse(context, (*_OF_ITEMS, *_OF_JOBS), "cannot be combined with --jsonl, whose lines have their own values")
    if box in boxes.resolved.jobs:
        _refuse(context, _OF_ITEMS, f"is for items, and {box} has long jobs: see --task and --args")
        if jsonl is not None:
            _create_jobs(boxes, box, jsonl, task=task, skip_bad=skip_bad)
        elif task is None:
            raise BadUsage("--task is needed for a job")
        else:
            attributes = _job(args, lock_key, idempotency_key, priority, delay, after, after_failure)
            _create_job(boxes, box, {"task": task, **attributes})
        return
    _refuse(context, ("task", *_OF_JOBS), f"is for long jobs, and {box} has items")
    if jsonl is not None:
        _create_items(boxes, box, jsonl, skip_bad=skip_bad)
    else:
        _create_item(boxes, box, event_key, payload, payload_file, event_name)


def _refuse(context: typer.Context, options: Iterable[str], reason: str) -> None:
    """Refuses options that would be ignored."""
    for name in options:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise BadUsage(f"--{name.replace('_', '-')} {reason}")


# ── items ────────────────────────────────────────────────────────────────────────────────────────────


def _create_item(
    boxes: Boxes,
    box: str,
    event_key: str | None,
    payload: str | None,
    payload_file: Path | None,
    event_name: str | None,
) -> None:
    create = boxes.create_outbox_item if _is_outbox(boxes, box) else boxes.create_inbox_item
    with _engine_for_items(boxes, payload_file) as engine:
        item = _item(event_key, payload, payload_file, event_name)
        # As one item, so that the middlewares of create_item see it.
        writer = Writer(engine, lambda connection, items: [create(connection, box, **items[0])])
        output().print(f"item {writer.write([item])[0]} written to {box}")
        if not item["payload"]:
            notes().print("its payload is empty; --payload or --payload-file gives one")


def _create_items(boxes: Boxes, box: str, jsonl: str, *, skip_bad: bool) -> None:
    """Creates items from lines."""
    create_batch = boxes.create_outbox_batch if _is_outbox(boxes, box) else boxes.create_inbox_batch
    with _engine_for_items(boxes, jsonl) as engine:
        writer = Writer(engine, lambda connection, items: create_batch(connection, box, items))
        _stream(Stream(writer, skip_bad=skip_bad), jsonl, box)


def _is_outbox(boxes: Boxes, box: str) -> bool:
    return boxes.written(box).type is BoxType.OUTBOX


def _item(event_key: str | None, payload: str | None, payload_file: Path | None, event_name: str | None) -> Item:
    """The attributes of one item, from the command's options."""
    if event_key is None:
        raise BadUsage("--event-key is needed, or --jsonl")
    if payload is not None and payload_file is not None:
        raise BadUsage("--payload-file cannot be combined with --payload")
    data = payload_file.read_bytes() if payload_file else (payload or "").encode(errors="surrogateescape")
    return {"event_key": event_key, "payload": data} | ({} if event_name is None else {"event_name": event_name})


@contextmanager
def _engine_for_items(boxes: Boxes, file: str | Path | None) -> Iterator[Engine]:
    from boxengine.app.servers.database import connect_store  # noqa: PLC0415 - see Globals.boxes

    store = connect_store(boxes.resolved.settings)
    try:
        with _naming(file):
            yield store.engine
    finally:
        store.close()


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────


def _create_job(boxes: Boxes, box: str, attributes: Mapping[str, Any]) -> None:
    store = connect_to_jobs(boxes)
    try:
        id_ = Writer(store.engine, boxes.job_creator(box).create).write([attributes])[0]
    finally:
        store.close()
    output().print(f"job {id_} written to {box}")


def _job(
    args: str | None,
    lock_key: str | None,
    idempotency_key: str | None,
    priority: int,
    delay: float | None,
    after: str | None,
    after_failure: AfterFailure,
) -> dict[str, Any]:
    """The attributes of a job, from the command's options."""
    try:
        parsed = {} if args is None else json.loads(args)
    except ValueError as error:
        raise BadUsage(f"--args: expected JSON: {error}") from error
    return {
        "args": parsed,
        "lock_key": lock_key,
        "idempotency_key": idempotency_key,
        "priority": priority,
        "delay": delay,
        "after": None if after is None else ids_in([after], "--after"),
        "after_failure": after_failure,
    }


def _create_jobs(boxes: Boxes, box: str, jsonl: str, *, task: str | None, skip_bad: bool) -> None:
    """Creates long jobs from lines; ``task`` applies to lines that name none."""
    store = connect_to_jobs(boxes)
    writer = Writer(store.engine, boxes.job_creator(box).create)
    try:
        with _naming(jsonl):
            _stream(Stream(writer, skip_bad=skip_bad, parsed=partial(job_of, task=task), noun="job"), jsonl, box)
    finally:
        store.close()


# ── files ────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _naming(file: str | Path | None) -> Iterator[None]:
    """Tells which file could not be read, and why."""
    try:
        yield
    except OSError as error:
        raise BoxError(f"{error.filename or file}: {error.strerror}") from error


def _stream(stream: Stream, jsonl: str, box: str) -> None:
    from boxengine.cli.signals import stoppable  # noqa: PLC0415 - see Globals.boxes

    with stoppable(on_stop=stream.stop), opened(jsonl) as (lines, size):
        stream.run(lines, size)
    left_out = f", {plural(stream.bad, 'bad line')} left out" if stream.bad else ""
    output().print(f"{plural(stream.written, stream.noun)} written to {box}{left_out}")
