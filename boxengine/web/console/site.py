"""Everything that the console's pages and API need, assembled once."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple

from boxengine.app.boxes import Boxes
from boxengine.app.checking.doctor import Doctor
from boxengine.app.jobs.office import JobOffice
from boxengine.app.overview import JobBoxView, Lookout, Overview, Reasons, look_at_jobs, reasons, reasons_in_log
from boxengine.app.servers.connected import Servers
from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.domain.jobs import JobBox
from boxengine.engine.item_actions import ItemActions
from boxengine.engine.replaying import Replays
from boxengine.errors import QueueUnavailable, UnknownBox
from boxengine.ports import Count, ItemFilter, ItemRow, Precision
from boxengine.ports.people.checkup import Remark
from boxengine.ports.people.inspection import Found, Towards
from boxengine.ports.people.jobs import JobSearch, JobsFound
from boxengine.settings import explain
from boxengine.settings.explanation import Row
from boxengine.web.console.access import Access
from boxengine.web.console.errands import Errand, Errands
from boxengine.web.console.figures import AllFigures, Figures
from boxengine.web.console.hiding import Hiding
from boxengine.web.console.live import Live
from boxengine.web.console.parsing import Page
from boxengine.web.console.windows import WindowedItems, searched_for

SEARCH_SECONDS = 0.1
"""How long a page keeps searching when no index leads to its rows."""
SEARCH_WINDOWS = 2
"""How many parts of the table such a search covers; *Search further* on the page continues it."""
COUNTED_TO = 10_000
SILENT = timedelta(seconds=20)
"""How long the database may take for a question until people are told. Each statement has two seconds, a question has a few."""
EXAMINED_EVERY = 10.0
"""The least number of seconds between two examinations of the servers."""


class LookedUp(NamedTuple):
    """One item, and where it was found."""

    row: ItemRow
    in_log: bool
    """In the log alone: it has not failed, and people cannot act on it."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """The parts of one console."""

    boxes: Boxes
    servers: Servers
    access: Access
    hiding: Hiding
    read_only: bool
    trace_url: str | None
    errands: Errands
    _ids: Mapping[str, Box] = field(default_factory=dict)

    @cached_property
    def by_id(self) -> Mapping[str, Box]:
        """The boxes by their names in URLs."""
        return {pipeline.box.url_name: pipeline.box for pipeline in self.boxes.resolved.pipelines.values()}

    def url_of(self, name: str) -> str:
        """The path of the page of the box with this name."""
        return f"/boxes/{self.either(name).url_name}"

    def box(self, given: str) -> Box:
        """The box with this id in URLs, or with this name.

        Raises:
            UnknownBox: there is none.
        """
        found = self.by_id.get(given) or next((box for box in self.by_id.values() if box.name == given), None)
        if found is None:
            raise UnknownBox(given[:80], self.by_id)
        return found

    @cached_property
    def office(self) -> JobOffice:
        """Inspects and changes long jobs."""
        return JobOffice(self.boxes, self.servers.store)

    @cached_property
    def live(self) -> Live[Overview]:
        """The one look that all pages and tabs share."""
        return Live(self._lookout.look, told=self._measured)

    @cached_property
    def _lookout(self) -> Lookout:
        return Lookout(
            self.servers,
            list(self.by_id.values()),
            auto_disabled=self.boxes.resolved.settings.polling_auto_disabled,
            inspector=self.servers.inspector,
            alarms=Doctor(self.boxes, self.servers).alarms,
            tables=self.servers.store.look_again,
            jobs=self._look_at_jobs,
            job_workers=self.office.workers.living,
        )

    def changed(self, box: Box | JobBox) -> None:
        """Makes the next look show what somebody has just done to this box."""
        self._lookout.forget(box)
        self.live.forget()

    def show_change(self, box: Box | JobBox) -> None:
        """The same, and waits for that look, so that whoever did it sees it next."""
        self.changed(box)
        self.live.now()

    @cached_property
    def figures(self) -> Callable[[Box], Live[Figures]]:
        """Finds the figures of a box that all pages share."""
        return AllFigures(self.servers).of

    @cached_property
    def configuration(self) -> Sequence[Row]:
        """The configuration in force, which does not change while the process runs."""
        return explain(self.boxes.resolved.settings)

    def latest(self) -> Overview:
        """The latest look. Where the database has not answered the next one for long, it says so."""
        return self.told_in_silence() or self.live.latest()

    def told_in_silence(self) -> Overview | None:
        """The latest look with this outage, while the database does not answer the next one; None: it does, or has never."""
        known, awaited = self.live.known, self._lookout.awaits
        return None if known is None or awaited < SILENT else known.with_silence(awaited)

    def _look_at_jobs(self) -> tuple[tuple[JobBoxView, ...], tuple[str, ...]]:
        office = self.office
        auto_disabled = self.boxes.resolved.settings.polling_auto_disabled
        return look_at_jobs(
            office.inspector, office.pauses, office.boxes, auto_disabled=auto_disabled, clock=self.servers.clock
        )

    @cached_property
    def doctor(self) -> Live[Sequence[Remark]]:
        """The examination of the servers that all pages share."""
        return Live(Doctor(self.boxes, self.servers).look, every=EXAMINED_EVERY)

    def _measured(self, look: Overview) -> None:
        """Records, for the charts, how long the oldest items have waited."""
        waits = {
            view.box.name: 0.0 if view.waited is None else view.waited.total_seconds()
            for view in look.boxes
            if view.counts is not None
        }
        with contextlib.suppress(QueueUnavailable):
            self.servers.history.measured(waits, now=look.taken_at)

    def actions(self, errand: Errand) -> ItemActions:
        """Acts on items; finds them the way pages do."""
        return ItemActions(self.items(errand), self.servers.memory)

    def replays(self, errand: Errand) -> Replays:
        """Inserts delivered items again."""
        return Replays(self.items(errand))

    def items(self, errand: Errand) -> WindowedItems:
        """Rows, found window by window. The errand can be cancelled between two windows, even if it finds nothing for minutes."""
        return WindowedItems(self.servers.items, self.servers.inspector, go_on=errand.heed_cancel)

    def item(self, box: Box, item_id: ItemId) -> LookedUp | None:
        """One item, from the box's table or else from its log; None: there is none."""
        row = self.servers.items.get(box, item_id)
        if row is not None:
            return LookedUp(row, in_log=False)
        row = self.servers.log.get(box, item_id)
        return None if row is None else LookedUp(row, in_log=True)

    def why(self, box: Box, found: LookedUp) -> Reasons:
        """Why the item waits, or where it is."""
        view, now, inspector = self.latest().box(box.name), self.servers.store.now(), self.servers.inspector
        if found.in_log:
            return reasons_in_log(view, found.row, inspector, self.servers.log, now=now)
        return reasons(view, found.row, inspector, now=now)

    def find(self, box: Box, which: ItemFilter, *, start: int | None, towards: Towards, limit: int) -> Found:
        """A page of rows; if no index leads to them, those that a limited search finds."""
        windows, late = itertools.count(1), searched_for(SEARCH_SECONDS)
        return self.servers.inspector.find(
            box,
            which,
            start=start,
            towards=towards,
            limit=limit,
            enough=lambda: next(windows) >= SEARCH_WINDOWS or late(),
        )

    def either(self, given: str) -> Box | JobBox:
        """The box with this id in URLs, or with this name, of either kind.

        Raises:
            UnknownBox: there is none.
        """
        return self.office.by_id.get(given) or self.office.named.get(given) or self.box(given)

    def find_jobs(self, box: JobBox, which: JobSearch, wanted: Page) -> JobsFound:
        """A page of long jobs; searches like ``find``."""
        windows, late = itertools.count(1), searched_for(SEARCH_SECONDS)
        return self.office.inspector.find(
            box,
            which,
            start=wanted.start,
            towards=wanted.towards,
            limit=wanted.limit,
            enough=lambda: next(windows) >= SEARCH_WINDOWS or late(),
        )

    def count_jobs(self, box: JobBox, which: JobSearch) -> Count:
        """How many jobs the search finds, as far as that can be counted quickly."""
        return self.office.inspector.count(box, which, limit=COUNTED_TO)

    def count(self, box: Box, which: ItemFilter) -> Count:
        """How many rows the filter finds, as far as that can be counted quickly."""
        count = self.servers.inspector.count(box, which, limit=COUNTED_TO)
        return count if count.number or count.precision is Precision.EXACT else Count(0, Precision.AT_LEAST)

    def count_from(self, box: Box, which: ItemFilter, first: Found) -> Count:
        """How many rows the filter finds, as far as the first page and an index tell."""
        if first.searched_to is None:
            return Count(len(first.rows))
        if which.statuses and Status.DELIVERED not in which.statuses:
            return self.count(box, which)
        return Count(len(first.rows), Precision.AT_LEAST)
