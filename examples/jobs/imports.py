"""Orders come in files of many lines. An upload is a row; the import of its file is a long job."""

from typing import Any, TypedDict

from sqlalchemy import JSON, ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from boxengine import Job, JobItem, create_job

CHUNK = 100


class Base(DeclarativeBase):
    pass


class Upload(Base):
    __tablename__ = "uploads"
    id: Mapped[int] = mapped_column(primary_key=True)
    lines: Mapped[list[Any]] = mapped_column(JSON)


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    upload_id: Mapped[int] = mapped_column(ForeignKey("uploads.id"))
    item: Mapped[str]


class ImportJob(JobItem, Base):
    __tablename__ = "import_jobs"


class ImportArgs(TypedDict):
    upload_id: int


def upload(session: Session, customer: str, lines: list[str]) -> int:
    """Stores the file, and the job with it: both are committed, or neither. One import at a time for each customer."""
    file = Upload(lines=lines)
    session.add(file)
    session.flush()
    return create_job(
        session, ImportJob, task="import_orders", args={"upload_id": file.id}, lock_key=f"customer {customer}"
    )


def import_orders(job: Job[ImportArgs]) -> dict[str, int]:
    """The handler. Each chunk is committed together with the checkpoint that says how far it came."""
    file = job.session.get_one(Upload, job.args["upload_id"])
    done = job.state or 0
    while done < len(file.lines):
        if job.cancelled:
            return {"imported": done}
        chunk = file.lines[done : done + CHUNK]
        job.session.add_all(Order(upload_id=file.id, item=item) for item in chunk)
        done += len(chunk)
        job.checkpoint(done)
        job.progress(done=done, total=len(file.lines))
    return {"imported": done}
