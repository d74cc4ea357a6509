"""Deliveries that hold the buckets of a log while somebody else needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from boxengine.adapters.sql.connecting.errors import LOCK_NOT_AVAILABLE
from boxengine.domain.box import Box
from boxengine.errors import StoreConflict


class DeliveryUnderWay(StoreConflict):
    """A delivery did not end in the time that a command waits for it: a person has to pause the box."""


@contextmanager
def waiting_for_deliveries(box: Box) -> Iterator[None]:
    """For statements that take the locks of buckets.

    Raises:
        DeliveryUnderWay: one of them was not to be had in time.
    """
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
            raise
        raise DeliveryUnderWay(
            f"box {box.name}: a delivery takes longer than this command waits; run boxengine pause {box.name}, repeat the "
            f"command, then boxengine resume {box.name}"
        ) from error
