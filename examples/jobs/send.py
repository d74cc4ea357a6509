"""python send.py: makes the application's tables and uploads a file of 250 orders."""

import os

from imports import Base, upload
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

engine = create_engine(os.environ["DATABASE_URL"])
Base.metadata.create_all(engine)
with Session(engine) as session, session.begin():
    print("job", upload(session, "ACME", [f"item {n}" for n in range(250)]))
engine.dispose()
