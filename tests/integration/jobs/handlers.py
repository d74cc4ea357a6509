"""Models and handlers of the tests. Handlers wait for rows that the tests write, so that nothing depends on speed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import String, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from boxengine import AsyncJob, Job, JobItem


class Base(DeclarativeBase):
    pass


class ReportJob(JobItem, Base):
    __tablename__ = "report_jobs"


class Effect(Base):
    __tablename__ = "effects"
    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(String(100))


class Gates:
    """By name, what handlers wait for."""

    def __init__(self) -> None:
        self._gates: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    @property
    def open(self) -> set[str]:
        with self._lock:
            return {name for name, gate in self._gates.items() if gate.is_set()}

    def __getitem__(self, name: str) -> threading.Event:
        with self._lock:
            return self._gates.setdefault(name, threading.Event())


def export(job: Job[Any]) -> dict[str, Any]:
    job.session.execute(text("INSERT INTO effects (body) VALUES (:body)"), {"body": f"{job.id}"})
    job.progress(done=1)
    return {"rows": job.args["rows"]}


def until_cancelled(job: Job[Any]) -> None:
    job.progress(waiting=True)
    pause = threading.Event()
    while not job.cancelled:
        pause.wait(0.01)


class Guarded:
    """A handler with a method ``handle``."""

    def handle(self, job: Job[Any]) -> str:
        gates: Gates = GATES[job.args["test"]]
        gates[f"begun {job.id}"].set()
        gates[f"go {job.id}"].wait(60)
        return f"by attempt {job.attempt}"


def at_leisure(job: Job[Any]) -> int:
    """Three steps, each with a row and a checkpoint. It waits after each to be told to go on."""
    gates: Gates = GATES[job.args["test"]]
    for step in range(job.state or 0, 3):
        job.session.add(Effect(body=f"{job.id}: step {step}"))
        job.checkpoint(step + 1)
        gates[f"made {job.id} {step}"].set()
        gates[f"after {job.id} {step}"].wait(60)
    return job.attempt


def large(job: Job[Any]) -> str | None:
    """Gives the database a long text in the way that is asked for."""
    value = "x" * int(job.args["length"])
    match job.args["how"]:
        case "result":
            return value
        case "result with a session":
            job.session.execute(text("INSERT INTO effects (body) VALUES ('to be undone')"))
            return value
        case "checkpoint":
            job.checkpoint(value)
        case "progress":
            pause = threading.Event()
            while True:
                job.progress(value=value)
                pause.wait(0.01)
    return None


async def in_steps(job: AsyncJob[Any]) -> list[Any]:
    """Each step has a checkpoint. The first attempt ends in the third step, which it has undone by then in part."""
    for step in range(job.state or 0, 3):
        job.session.add(Effect(body=f"{job.attempt}.{step}"))
        if step == 2 and job.attempt == 1:
            await job.session.flush()
            raise ValueError("in the middle")
        await job.checkpoint(step + 1)
    job.session.add(Effect(body="to be undone"))
    await job.session.flush()
    await job.session.rollback()
    job.session.add(Effect(body="the end"))
    return list(await job.session.scalars(select(Effect.body).order_by(Effect.id)))


async def until_told(job: AsyncJob[Any]) -> None:
    """Waits for what never comes."""
    await job.session.execute(text("SELECT 1"))
    job.progress(waiting=True)
    await asyncio.Event().wait()


def swallow(job: Job[Any]) -> str:
    """Writes a row, and then the same one again in the way that is asked for; the error goes unnoticed."""
    session = job.session
    session.add(Effect(id=7, body="first"))
    session.flush()
    session.expunge_all()
    with suppress(SQLAlchemyError):
        match job.args["how"]:
            case "statement":
                session.execute(text("INSERT INTO effects (id, body) VALUES (7, 'again')"))
            case "flush":
                session.add(Effect(id=7, body="again"))
                session.flush()
            case "savepoint":
                with session.begin_nested():
                    session.execute(text("INSERT INTO effects (id, body) VALUES (7, 'again')"))
    match job.args.get("then"):
        case "checkpoint":
            job.checkpoint(1)
        case "statement":
            session.execute(text("SELECT 1"))
        case "rollback":
            session.rollback()
    return "done"


async def forget(job: AsyncJob[Any]) -> str:
    """Forgets one ``await``, with everything else in order."""
    session = job.session
    await session.execute(text("INSERT INTO effects (body) VALUES ('kept')"))
    for _ in range(job.args.get("statements", 0)):
        await session.execute(text("SELECT 1"))
    match job.args["what"]:
        case "execute":
            session.execute(text("INSERT INTO effects (body) VALUES ('forgotten')"))
        case "delete":
            session.delete(await session.get(Effect, 1))
        case "checkpoint":
            job.checkpoint(1)  # type: ignore[unused-coroutine] # the mistake that is meant
        case "task":
            await asyncio.gather(session.execute(text("INSERT INTO effects (body) VALUES ('in a task')")))
    return "done"


def commit(job: Job[Any]) -> None:
    """Writes a row and means to commit it in the way that is asked for, after a savepoint, which is allowed."""
    with job.session.begin_nested():
        job.session.execute(text("INSERT INTO effects (body) VALUES ('in a savepoint')"))
    if job.args["how"] != "begin":
        getattr(job.session, job.args["how"])()
    job.session.rollback()
    with job.session.begin():
        job.session.execute(text("INSERT INTO effects (body) VALUES ('past the fence')"))


async def commit_awaited(job: AsyncJob[Any]) -> None:
    """The same in a coroutine."""
    async with job.session.begin_nested():
        await job.session.execute(text("INSERT INTO effects (body) VALUES ('in a savepoint')"))
    if job.args["how"] != "begin":
        await getattr(job.session, job.args["how"])()
    await job.session.rollback()
    async with job.session.begin():
        await job.session.execute(text("INSERT INTO effects (body) VALUES ('past the fence')"))


def block(job: Job[Any]) -> None:
    """Takes the session for one of its own, and writes in its block."""
    with job.session as session:
        session.add(Effect(body="in a block"))


async def block_awaited(job: AsyncJob[Any]) -> None:
    """The same in a coroutine."""
    async with job.session as session:
        session.add(Effect(body="in a block"))


def leave_a_thread(job: Job[Any]) -> None:
    """Ends before its thread, which goes on with the job in the way that is asked for."""
    gates: Gates = GATES[job.args["test"]]
    session = job.session
    session.execute(text("SELECT 1"))
    ways: dict[str, Callable[[], object]] = {
        "the session": lambda: session.execute(text("INSERT INTO effects (body) VALUES ('too late')")),
        "job.session": lambda: job.session.execute(text("INSERT INTO effects (body) VALUES ('too late')")),
        "job.checkpoint": lambda: job.checkpoint(1),
        "job.progress": lambda: job.progress(done=1),
        "job.ensure_held": job.ensure_held,
    }

    def go_on() -> None:
        gates["the handler has ended"].wait(60)
        try:
            ways[job.args["way"]]()
        except Exception as error:
            gates[f"{type(error).__name__}: {error}"].set()
        gates["the thread has ended"].set()

    threading.Thread(target=go_on).start()


GATES: dict[str, Gates] = {}
"""By test, so that none meets another's."""
