"""Order files over HTTP: an upload begins a long job, whose progress the customer sees, and the staff in the console."""

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from imports import Base, ImportJob, upload
from pydantic import BaseModel
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

import boxengine.web
from boxengine.integrations.fastapi import lifespan

engine = create_engine(os.environ["DATABASE_URL"])
boxes = boxengine.load()


class NewUpload(BaseModel):
    customer: str
    lines: list[str]


def session_of_request() -> Generator[Session, None, None]:
    with Session(engine) as session, session.begin():
        yield session


# Committed before the answer goes out: whoever gets the number finds the job.
DbSession = Annotated[Session, Depends(session_of_request, scope="function")]


def who_asks(request: Request) -> str | None:
    return "staff" if request.headers.get("x-staff") == os.environ.get("STAFF_TOKEN", "letmein") else None


@asynccontextmanager
async def database(_app: FastAPI) -> AsyncGenerator[None, None]:
    Base.metadata.create_all(engine)
    yield
    engine.dispose()


app = FastAPI(lifespan=lifespan(boxes, around=database))
app.mount("/boxengine", boxengine.web.app(boxes, authenticate=who_asks))


@app.post("/uploads", status_code=202)
def create_upload(new: NewUpload, session: DbSession) -> dict[str, int]:
    return {"import": upload(session, new.customer, new.lines)}


@app.get("/imports/{number}")
def show_import(number: int, session: DbSession) -> dict[str, Any]:
    job = session.get(ImportJob, number)
    if job is None:
        raise HTTPException(404)
    return {"status": job.status, "progress": job.progress, "result": job.result}
