"""From the settings of job boxes to their models and handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from boxengine.domain.contracts import Contract, kinds
from boxengine.domain.jobs import Executor
from boxengine.domain.names import box_name, twins
from boxengine.engine.answers import ASYNC, never_runs
from boxengine.engine.jobs.batch_handler import BatchHandler
from boxengine.engine.jobs.pipeline import JobPipeline
from boxengine.errors import InvalidItem, described
from boxengine.settings.call_shapes import misfit
from boxengine.settings.jobs import JobBoxSettings
from boxengine.settings.origin import Path
from boxengine.settings.resolution.models import has_numbers
from boxengine.settings.resolution.named import Named
from boxengine.settings.rules import names
from boxengine.settings.schema import Settings

if TYPE_CHECKING:
    from boxengine.engine.jobs.handle import Handler

_COLUMNS = ("task", "lock_key", "token", "lease_expires_at")
"""What no table of jobs lacks."""
SHAPE = "(job)"
SHAPE_OF_MANY = "(jobs)"


class JobBoxes:
    """The boxes of long jobs."""

    def __init__(self, settings: Settings, named: Named) -> None:
        self._settings = settings
        self._named = named
        self._twins = twins(names(settings))

    def run(self, *, handlers: bool) -> dict[str, JobPipeline]:
        """The boxes by name.

        Args:
            handlers: whether to import the handlers, which only a worker needs.
        """
        return {name: self._pipeline(name, box, handlers=handlers) for name, box in self._settings.job_items.items()}

    def _pipeline(self, name: str, box: JobBoxSettings, *, handlers: bool) -> JobPipeline:
        path = ("job_items", name)
        model = None if box.model is None else self._model((*path, "model"), box.model, name)
        mapped = None if model is None else model.__table__.fullname  # type: ignore[attr-defined]
        if mapped and box.table and mapped != box.table:
            message = f"is {box.table!r}, but the model's is {mapped!r}; leave this key out"
            self._named.report((*path, "table"), message)
        owner = self._settings.owner if box.owner is None else box.owner
        loaded = self._handlers((*path, "tasks"), box) if handlers else {}
        contracts = self._contracts(path, box)
        return JobPipeline(
            box=replace(box.box(name, table=str(mapped or box.table_for(name)), owner=owner), twin=name in self._twins),
            model=model,
            tasks=frozenset(box.tasks),
            handlers=loaded,
            paths=box.tasks,
            contract_paths=box.contracts,
            contracts=contracts,
            schedules=tuple(each.plan(schedule) for schedule, each in box.cron.items()),
        )

    def _contracts(self, path: Path, box: JobBoxSettings) -> dict[str, type[Contract]]:
        found = {}
        for task, dotted_path in box.contracts.items():
            here = (*path, "contracts", task)
            contract = self._named.load(here, dotted_path)
            fault = None if contract is None else _fault_of_contract(contract)
            if task not in box.tasks:
                known = ", ".join(sorted(box.tasks)) or "none is configured"
                self._named.report(here, f"no task {task!r}; known: {known}")
            elif fault is not None:
                self._named.report(here, f"{dotted_path} {fault}")
            elif contract is not None:
                found[task] = contract
        for schedule, each in box.cron.items():
            if each.task in found:
                try:
                    found[each.task].from_json({} if each.args is None else each.args)
                except InvalidItem as error:
                    self._named.report((*path, "cron", schedule, "args"), str(error))
        return found

    def _model(self, path: Path, dotted_path: str, box: str) -> type | None:
        found = self._named.load(path, dotted_path)
        if found is None:
            return None
        fault = _fault_of_model(found, box)
        if fault is None and isinstance(found, type):
            return found
        self._named.report(path, f"{dotted_path} {fault}")
        return None

    def _handlers(self, path: Path, box: JobBoxSettings) -> dict[str, Handler | BatchHandler]:
        """The handlers by task, as far as they can be had."""
        loaded = {}
        for task, dotted_path in box.tasks.items():
            handler = self._handler((*path, task), dotted_path, box.executor)
            if handler is not None:
                loaded[task] = handler
        self._demand_one_kind(path, loaded)
        return loaded

    def _handler(self, path: Path, dotted_path: str, executor: Executor) -> Handler | BatchHandler | None:
        found = self._named.load(path, dotted_path)
        if found is None:
            return None
        name, of_many = dotted_path, False
        if isinstance(found, type):
            of_many = hasattr(found, "handle_batch")
            method = "handle_batch" if of_many else "handle"
            if of_many and hasattr(found, "handle"):
                self._named.report(path, f"{dotted_path} has both handle and handle_batch; expected one")
                return None
            try:
                found, name = getattr(found(), method), f"{dotted_path}.{method}"
            except (Exception, SystemExit) as error:
                expected = f"expected a class that takes no arguments and has {method}"
                self._named.report(path, f"{dotted_path}().{method} raised {described(error)}; {expected}")
                return None
        if executor is Executor.PROCESS:
            mistake = _mistake_in_process(found, dotted_path, of_many=of_many)
        else:
            mistake = _mistake_of_many(found) if of_many else _mistake(found)
        if mistake is not None:
            self._named.report(path, f"{name} {mistake}")
            return None
        return BatchHandler(found) if of_many else cast("Handler", found)

    def _demand_one_kind(self, path: Path, handlers: Mapping[str, Handler | BatchHandler]) -> None:
        many = sorted(task for task, handler in handlers.items() if isinstance(handler, BatchHandler))
        single = sorted(handlers.keys() - set(many))
        if many and single:
            # A thread would be kept from batches by a long job, with a whole batch claimed for it.
            message = (
                f"{', '.join(many)} has handle_batch, and {', '.join(single)} has not; give them boxes of their own"
            )
            self._named.report(path, message)


def _mistake_of_many(found: Any) -> str | None:
    if not callable(found):
        return f"is {type(found).__name__}; expected a method handle_batch{SHAPE_OF_MANY}"
    kind = never_runs(found)
    if kind is not None:
        return f"is {kind}; write def, and return a list: a handler of many jobs runs in a thread"
    return misfit(found, SHAPE_OF_MANY)


def _mistake_in_process(found: Any, dotted_path: str, *, of_many: bool) -> str | None:
    if of_many:
        return "takes many jobs, which needs threads; leave out executor: process, or write handle(job)"
    if callable(found) and never_runs(found) == ASYNC:
        return "is async def; a process runs one plain handler: write def, or leave out executor: process"
    if dotted_path.startswith("__main__"):
        return "is in the program's main file, which a process of its own does not load; move it into a module"
    return _mistake(found)


def _mistake(found: Any) -> str | None:
    if not callable(found):
        return f"is {type(found).__name__}; expected a function {SHAPE}, or a class with a method handle{SHAPE}"
    kind = never_runs(found)
    if kind not in (None, ASYNC):
        return f"is {kind}, whose code would never run; write def or async def, and return"
    return misfit(found, SHAPE)


def _fault_of_contract(found: Any) -> str | None:
    """Why this is no contract; None if it is one."""
    if not isinstance(found, type) or not issubclass(found, Contract):
        return "is no contract; expected a dataclass with the base boxengine.Contract"
    if not isinstance(getattr(found, "contract_id", None), int):
        return "has no contract_id; expected a number that no other contract has"
    try:
        kinds(found)
    except TypeError as error:
        return f"is no contract: {error}"
    return None


def _fault_of_model(found: Any, box: str) -> str | None:
    """Why this is no model of the box; None if it is one."""
    columns = getattr(getattr(found, "__table__", None), "columns", None)
    if columns is None:
        return "is no SQLAlchemy model; expected a class with the mixin boxengine.JobItem and a __tablename__"
    lacking = [name for name in _COLUMNS if name not in columns]
    if lacking:
        return f"has no {', '.join(lacking)}; expected the mixin boxengine.JobItem among its bases"
    if "id" in columns and not has_numbers(columns["id"]):
        return "has an id that is no whole number; expected the mixin's own"
    own = box_name(found)
    if own != box:
        return f"belongs to the box {own}; rename this box, or write __box_name__ = {box!r} in the class"
    return None
