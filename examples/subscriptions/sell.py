"""Sells three things to two customers."""

import os

from sales import sell
from sqlalchemy import create_engine

engine = create_engine(os.environ["DATABASE_URL"])
with engine.begin() as connection:
    sell(connection, "ACME", ["a bicycle", "a bell"])
    sell(connection, "Umbrella", ["a lock"])
engine.dispose()
