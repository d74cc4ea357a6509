"""Actions, as requested by pages and the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, assert_never

from boxengine.app.overview.words import counted
from boxengine.domain.box import Box
from boxengine.domain.item import Status, rfc3339
from boxengine.domain.jobs import JobBox
from boxengine.engine import replaying
from boxengine.engine.item_actions import SUITABLE, Action, narrowed
from boxengine.ports import Count, ItemFilter, Replay
from boxengine.web.console import replaying as replays
from boxengine.web.console.errands import COUNT, Errand
from boxengine.web.console.parsing import BadInput
from boxengine.web.console.site import Site

REPLAY = "replay"
DONE = {Action.RETRY: "retried", Action.DISCARD: "discarded", Action.DELETE: "deleted", REPLAY: "replayed"}
"""The actions on items, and the word that reports each as done."""
COUNTED_AT_ONCE = 1_000
SOON = timedelta(seconds=1)
"""An action that ends within this time is shown as done at once."""


class Polling(StrEnum):
    """A person's decision about a box."""

    PAUSE = "pause"
    RESUME = "resume"
    FORGET = "forget"


def action_of(given: Any) -> str:
    """The action of that name."""
    if not isinstance(given, str) or given not in DONE:
        raise BadInput(f"action: expected {', '.join(DONE)}")
    return given


def meant_by(action: str, which: ItemFilter) -> ItemFilter:
    """The filter as the action understands it.

    Raises:
        BoxError: the action does not apply to the items that the filter names.
    """
    return replaying.narrowed(which) if action == REPLAY else narrowed(Action(action), which)


def takes(action: str, status: int) -> bool:
    """Whether items of this status suit the action."""
    return status == Status.DELIVERED if action == REPLAY else status in SUITABLE[Action(action)]


def begin(
    site: Site,
    box: Box,
    action: str,
    which: ItemFilter,
    *,
    who: str,
    copying: Replay = replays.AS_IT_WAS,
    most: int | None = None,
    once: str | None = None,
) -> Errand:
    """Starts the action, and waits a moment for its end.

    Args:
        copying: how items are replayed.
        most: to how many items, in id order; None: to all.
        once: see ``Errands.start``.
    """
    meant = meant_by(action, which)  # reports an unsuitable status at once

    def run(errand: Errand) -> str:
        if action == REPLAY:
            try:
                copied = site.replays(errand).run(box, which, copying, limit=most, progress=errand.advance_replay)
            finally:
                site.changed(box)
            return f"{counted(Count(copied), 'item')} {DONE[action]}"
        try:
            done = site.actions(errand).run(box, Action(action), which, limit=most, progress=errand.advance)
        finally:
            site.servers.store.read_from_start(box.name)
            site.changed(box)
        left = f"; {counted(Count(done.left), 'item')} left alone: in work, or changed meanwhile" if done.left else ""
        return f"{counted(Count(done.changed), 'item')} {DONE[action]}{left}"

    what = in_words(meant) + (replays.in_words(copying) if action == REPLAY else "")
    errand = site.errands.start(who=who, action=action, box=box, what=what, run=run, once=once)
    errand.ended.wait(SOON.total_seconds())
    return errand


def count_exactly(site: Site, box: Box, which: ItemFilter, *, who: str) -> Errand:
    """Counts in the background, window by window, however large the table is."""

    def run(errand: Errand) -> str:
        number, after, items = 0, 0, site.items(errand)
        while ids := items.ids(box, which, after=after, limit=COUNTED_AT_ONCE):
            number, after = number + len(ids), ids[-1]
            errand.advance(len(ids))
        return f"exactly {counted(Count(number), 'item')}"

    errand = site.errands.start(who=who, action=COUNT, box=box, what=in_words(which), run=run)
    errand.ended.wait(SOON.total_seconds())
    return errand


def decide(site: Site, box: Box | JobBox, polling: Polling, *, who: str) -> None:
    """Pauses a box, resumes it, or drops that decision so that the configuration applies again."""
    if isinstance(box, JobBox):
        _decide_jobs(site, box, polling, who)
    else:
        _decide_items(site, box, polling)
    site.errands.note(who=who, action=str(polling), box=box, what="", outcome="done")
    site.show_change(box)


def _decide_jobs(site: Site, box: JobBox, polling: Polling, who: str) -> None:
    pauses = site.office.pauses
    if polling is Polling.FORGET:
        pauses.forget(box, who=who)
    else:
        pauses.set(box, running=polling is Polling.RESUME, who=who)


def _decide_items(site: Site, box: Box, polling: Polling) -> None:
    pauses = site.servers.pauses
    match polling:
        case Polling.PAUSE:
            pauses.set(box, polling_enabled=False)
        case Polling.RESUME:
            pauses.set(box, polling_enabled=True)
        case Polling.FORGET:
            pauses.forget(box)
        case never:
            assert_never(never)


def in_words(which: ItemFilter) -> str:
    """Describes the chosen items in words."""
    if which.ids and len(which.ids) == 1:
        return f"item {which.ids[0]}"
    statuses = " or ".join(Status(each).name.lower() for each in sorted(which.statuses))
    parts = [f"{statuses or 'all'} items"]
    parts += [f"{len(which.ids):,} ids"] if which.ids else []
    for name, value in _texts(which).items():
        parts.append(f"{name} {value}")
    return ", ".join(parts)


def _texts(which: ItemFilter) -> Mapping[str, str]:
    found = {
        "of key": which.event_key,
        "of event": which.event_name,
        "with uuid": which.uuid,
        "whose error says": which.error,
        **period(which.created_from, which.created_before),
    }
    return {name: value for name, value in found.items() if value is not None}


def period(since: datetime | None, before: datetime | None) -> dict[str, str]:
    """The ends of a period in words, those that are given."""
    ends = {"created since": since, "created before": before}
    return {words: rfc3339(end) for words, end in ends.items() if end is not None}


def one(item_id: int) -> ItemFilter:
    """A filter for one item, whatever its status."""
    return ItemFilter(ids=(item_id,))


def suitable(action: str, which: ItemFilter, status: int | None = None) -> ItemFilter:
    """The filter for one item whose status is known: deleting a pending item requires naming that status."""
    if action == Action.DELETE and status == Status.PENDING:
        return replace(which, statuses=frozenset({Status.PENDING}))
    return which
