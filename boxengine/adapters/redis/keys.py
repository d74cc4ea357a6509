"""Names of the keys in Redis, those of sbmt-outbox where it has one (SEMANTICS: coordination in Redis).

Each begins with the box's namespace, which is empty unless ``redis.prefix`` is set.
"""

from __future__ import annotations

from boxengine.domain.box import Box, BoxType
from boxengine.ports import Duty, LeaseName

_PAUSE_CLASSES = {BoxType.OUTBOX: "OutboxClass", BoxType.INBOX: "InboxClass"}
NEVER_THERE = "boxengine:never_there"
"""A key that nobody sets. ``SET ... XX`` on it changes nothing, and is refused by a server that takes no writes."""
_DUTIES = {Duty.POLLING: "poller", Duty.RETENTION: "retention", Duty.BACKLOG: "backlog"}


def job_queue(box: Box) -> str:
    """The list of the box's jobs."""
    return f"{box.namespace}{box.name}:job_queue"


def bell(box: Box, name: str) -> str:
    """The list at which one worker's waiting take listens besides its queues, so that the worker can stop at once."""
    return f"{box.namespace}boxengine:bell:{name}"


def queued(box: Box) -> str:
    """The hash from bucket to the list element queued for it."""
    return f"{box.namespace}{box.name}:queued"


def wanted(box: Box) -> str:
    """The set of buckets that were pushed again while in work."""
    return f"{box.namespace}{box.name}:wanted"


def in_work(box: Box) -> str:
    """The hash from bucket to the token of the holder that took it and has not released it; see ``queue_scripts`` for a "!"."""
    return f"{box.namespace}boxengine:in_work:{box.name}"


def in_hand(box: Box) -> str:
    """The hash from item to the worker that sends it by itself."""
    return f"{box.namespace}boxengine:in_hand:{box.name}"


def bucket_lease_prefix(box: Box) -> str:
    """The prefix of buckets' leases; the bucket's number and ``:lock`` follow."""
    return f"{box.namespace}sbmt:outbox:processor:{box.name}:"


def lease(name: LeaseName) -> str:
    """The lease on a duty, without the namespace: ``sbmt:outbox:poller:{box}:{partition}:lock`` and its like."""
    place = name.box if name.partition is None else f"{name.box}:{name.partition}"
    return f"sbmt:outbox:{_DUTIES[name.duty]}:{place}:lock"


def item_meta_prefix(box: Box) -> str:
    """The prefix of the keys with items' remembered failures; an item's id follows."""
    return f"{box.namespace}{box.type}:{box.name}:"


def item_meta(box: Box, item_id: int) -> str:
    """The key with an item's remembered failures."""
    return f"{item_meta_prefix(box)}{item_id}"


def box_id(box: Box) -> str:
    """The box's name as sbmt-outbox's API writes it: ``combined/outbox_item`` is ``combined-outbox-item``."""
    return box.name.replace("/", "-").replace("_", "-")


def pause(box: Box) -> str:
    """The hash that says whether a person has paused the box."""
    return f"{pause_prefix(box)}{box_id(box)}"


def pause_prefix(box: Box) -> str:
    """The prefix of these hashes; a box's id follows."""
    return f"{box.namespace}Sbmt::Outbox::Api::{_PAUSE_CLASSES[box.type]}:"


def boxes(box: Box) -> str:
    """The set of the ids of all outboxes, or all inboxes, by which their pauses are read together."""
    return f"{box.namespace}boxengine:{box.type}_boxes"
