"""Names of the keys in Redis, those of sbmt-outbox where it has one (SEMANTICS: coordination in Redis)."""

from __future__ import annotations

from boxengine.domain.box import Box, BoxType

_PAUSE_CLASSES = {BoxType.OUTBOX: "OutboxClass", BoxType.INBOX: "InboxClass"}


def job_queue(box: Box) -> str:
    """The list of the box's jobs."""
    return f"{box.name}:job_queue"


def queued(box: Box) -> str:
    """The hash from bucket to the element that was queued for it."""
    return f"{box.name}:queued"


def wanted(box: Box) -> str:
    """The set of buckets that were pushed again while in work."""
    return f"{box.name}:wanted"


def bucket_lease_prefix(box: Box) -> str:
    """What a bucket's lease begins with; the bucket's number and ``:lock`` follow."""
    return f"sbmt:outbox:processor:{box.name}:"


def item_meta_prefix(box: Box) -> str:
    """What the keys begin with where items' failures are remembered; an item's id follows."""
    return f"{box.type}:{box.name}:"


def item_meta(box: Box, item_id: int) -> str:
    """Where an item's failures are remembered."""
    return f"{item_meta_prefix(box)}{item_id}"


def box_id(box: Box) -> str:
    """The box's name as sbmt-outbox's API writes it: ``combined/outbox_item`` is ``combined-outbox-item``."""
    return box.name.replace("/", "-").replace("_", "-")


def pause(box: Box) -> str:
    """The hash that says whether a person has paused the box."""
    return f"Sbmt::Outbox::Api::{_PAUSE_CLASSES[box.type]}:{box_id(box)}"
