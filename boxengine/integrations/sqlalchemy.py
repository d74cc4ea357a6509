"""Items for changes of a SQLAlchemy model, written in the flush that writes the change.

::

    @emits(OrderOutboxItem, payload=lambda order: json.dumps({"id": order.id, "total": order.total}))
    class Order(Base): ...

    session.add(Order(total=12))
    session.commit()          # an item "order_created" commits with the order, or neither does

A flush that changes many objects writes their items in one batch per box. Statements that change rows without loading
objects (``session.execute(update(Order)...)``) emit nothing by themselves: see ``emit``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import ClauseElement, Connection, Table, event, inspect
from sqlalchemy.orm import InstanceState, Mapper, Session, object_session

from boxengine.adapters.sql.sessions.callers_connection import bind_arguments, callers_connection
from boxengine.app.boxes import Boxes, default
from boxengine.app.boxes.creating import Model
from boxengine.domain.box import BoxType
from boxengine.domain.names import box_name
from boxengine.errors import InvalidItem
from boxengine.integrations.emissions import Change, Emission, Maker, Source, asked, objects_of

__all__ = ["Change", "emit", "emits"]

T = TypeVar("T", bound=type[Any])

_PENDING = "_boxengine_emitted"
"""The session's attribute for what its current flush has to emit. Its ``info`` is the application's, which may clear it, or give
it to another session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapperEmission(Emission):
    """What one ``@emits`` of a mapped class specifies."""

    model: Model
    boxes: Callable[[], Boxes]

    def primary_key(self, target: Any) -> Any:
        state: InstanceState[Any] = inspect(target)
        key = state.mapper.primary_key_from_instance(target)
        if any(part is None for part in key):
            name = type(target).__name__
            raise InvalidItem(f"emits: {name} has no primary key yet: flush it first, or take it from RETURNING")
        return "/".join(map(str, key))


def emits(
    model: Model,
    *,
    payload: Maker,
    on: Sequence[str] = ("insert", "update", "delete"),
    when: Maker | None = None,
    event_name: Source = None,
    event_key: Source = None,
    options: Maker | None = None,
    boxes: Boxes | None = None,
) -> Callable[[T], T]:
    """A class decorator: changes of the mapped class write items to an outbox, in the same flush and transaction.

    Each callable gets the object, and a ``Change`` if it takes a second argument.

    Args:
        model: the outbox's model class, or the box's name.
        payload: makes the payload: bytes, str, or what the model's codec encodes.
        on: ``insert``, ``update``, ``delete``, or some of them. An update counts if a column's value changed.
        when: whether to emit an item; always if None.
        event_name: a name, or a callable; ``order_created``, ``order_updated``, ``order_deleted`` if None.
        event_key: an attribute's name, or a callable; the primary key if None.
        options: makes the item's options.
        boxes: writes the items; those of the default configuration if None.

    Raises:
        InvalidItem: ``on`` names an unknown action, ``model`` is no model and no name, another argument is none that a flush
            could call, or no class is decorated.

    Example::

        @emits(OrderOutboxItem, on=["update"], when=lambda order, change: "status" in change.before,
               event_key="customer_id", payload=lambda order: order.as_json())
        class Order(Base): ...
    """
    box_name(model)  # refuses what would be refused in the first flush
    emission = MapperEmission(
        model=model,
        boxes=default.current if boxes is None else lambda: boxes,
        **asked(payload=payload, on=on, when=when, event_name=event_name, event_key=event_key, options=options),
    )

    def decorate(mapped: T) -> T:
        if not isinstance(mapped, type):
            raise InvalidItem(f"emits: a mapped class, or a mixin of such classes, is needed, not {mapped!r:.80}")
        for action in emission.actions:
            event.listen(mapped, f"after_{action}", _noting(emission, action), propagate=True)
        if "update" in emission.actions:
            event.listen(mapped, "before_update", _note_expressions, propagate=True)
            _keep_earlier_values(mapped)
        mapped.__box_emissions__ = (*vars(mapped).get("__box_emissions__", ()), emission)
        return mapped

    return decorate


def emit(session: Session, targets: Iterable[Any], *, action: str = "update") -> list[int]:
    """Writes items for these objects as if the session had changed them, and returns the items' ids.

    For statements that change rows without loading objects::

        orders = session.scalars(update(Order).where(Order.late).values(status="late").returning(Order)).all()
        emit(session, orders)                             # with an AsyncSession: await session.run_sync(emit, orders)

    Args:
        action: ``insert``, ``update`` or ``delete``. ``Change.before`` is empty.

    Raises:
        InvalidItem: an object's class has no ``@emits``, an object has no primary key yet, or ``action`` is unknown.
    """
    found = objects_of(targets, action)
    change = Change(action=action, before={})
    noted: list[_Noted] = []
    for target in found:
        emissions = _emissions(type(target))
        if not emissions:
            raise InvalidItem(f"emit: {type(target).__name__} has no @emits")
        connection = callers_connection(session, _bind_arguments(inspect(target).mapper))
        noted += [_Noted(emission, target, change, connection) for emission in emissions]
    return _write(noted)


def _bind_arguments(mapper: Mapper[Any]) -> Mapping[str, Any]:
    table = mapper.local_table
    return bind_arguments(mapper.class_, table) if isinstance(table, Table) else {"mapper": mapper}


def _emissions(mapped: type[Any]) -> list[MapperEmission]:
    """Those of a class, after those of its mixins and bases."""
    return [each for cls in reversed(mapped.__mro__) for each in vars(cls).get("__box_emissions__", ())]


# ── within a flush ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Noted:
    """A change for which an item may have to be written."""

    emission: MapperEmission
    target: Any
    change: Change
    connection: Connection
    """The connection that wrote the change."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """What a session's current flush has to emit."""

    noted: list[_Noted] = field(default_factory=list)
    expressions: dict[InstanceState[Any], dict[str, Any]] = field(default_factory=dict)
    """By object: the earlier values of the columns that SQL expressions set."""

    def clear(self) -> None:
        self.noted.clear()
        self.expressions.clear()


def _noting(emission: MapperEmission, action: str) -> Callable[[Mapper[Any], Connection, Any], None]:
    def note(_mapper: Mapper[Any], connection: Connection, target: Any) -> None:
        session = object_session(target)
        if session is None:
            return
        pending = _pending(session)
        before = _changed(target) | pending.expressions.get(inspect(target), {}) if action == "update" else {}
        # SQLAlchemy reports an update for every object that it examined.
        if before or action != "update":
            pending.noted.append(_Noted(emission, target, Change(action=action, before=before), connection))

    return note


def _note_expressions(_mapper: Mapper[Any], _connection: Connection, target: Any) -> None:
    """Once an expression's UPDATE is sent, SQLAlchemy has expired the attribute, and no longer knows that it changed."""
    session = object_session(target)
    values = inspect(target).dict.values()
    if session is not None and any(
        isinstance(each, ClauseElement) or hasattr(each, "__clause_element__") for each in values
    ):
        _pending(session).expressions[inspect(target)] = _changed(target)


def _keep_earlier_values(mapped: type[Any]) -> None:
    """Makes SQLAlchemy load a value before it is replaced: after a commit it would otherwise not know the earlier value."""

    def keep(mapper: Mapper[Any], _class: type[Any]) -> None:
        for attribute in mapper.column_attrs:
            event.listen(attribute.class_attribute, "set", _ignore, active_history=True, propagate=True)

    mapper: Mapper[Any] | None = inspect(mapped, raiseerr=False)  # a mixin or an abstract base has none
    if mapper is not None and mapper.configured:
        keep(mapper, mapped)
    event.listen(mapped, "mapper_configured", keep, propagate=True)


def _ignore(_target: Any, _value: Any, _before: Any, _initiator: Any) -> None:
    """A listener that does nothing, registered only for its option ``active_history``."""


def _changed(target: Any) -> dict[str, Any]:
    """The columns whose values changed, with their earlier values."""
    state: InstanceState[Any] = inspect(target)
    found = {}
    for attribute in state.mapper.column_attrs:
        history = state.attrs[attribute.key].history
        if history.has_changes():
            found[attribute.key] = history.deleted[0] if history.deleted else None
    return found


def _pending(session: Session) -> _Pending:
    """What this flush has to emit. It is written after everything else, when all keys and relations are known."""
    pending: _Pending | None = session.__dict__.get(_PENDING)
    if pending is None:
        pending = session.__dict__[_PENDING] = _Pending()
        event.listen(session, "after_flush", _flushed)
        event.listen(session, "after_soft_rollback", _rolled_back)
    return pending


def _flushed(session: Session, _context: Any) -> None:
    pending = session.__dict__[_PENDING]
    noted = pending.noted[:]
    pending.clear()
    _write(noted)


def _rolled_back(session: Session, _transaction: Any) -> None:
    session.__dict__[_PENDING].clear()


def _write(noted: Sequence[_Noted]) -> list[int]:
    """Writes one batch per box and connection, with the items in the order in which the changes were written."""
    batches: dict[tuple[str, Connection], tuple[MapperEmission, list[dict[str, Any]]]] = {}
    for each in noted:
        _load_what_pydantic_leaves_out(each)
        attributes = each.emission.attributes(each.target, each.change)
        if attributes is not None:
            place = box_name(each.emission.model), each.connection
            batches.setdefault(place, (each.emission, []))[1].append(attributes)
    ids: list[int] = []
    for (_name, connection), (emission, rows) in batches.items():
        # Uses the connection: the session would start another flush within this one.
        ids += emission.boxes().creator(emission.model, BoxType.OUTBOX).create_batch(connection, rows)
    return ids


def _load_what_pydantic_leaves_out(noted: _Noted) -> None:
    """Loads what the database has computed, such as ``order.total = Order.total + 1``.

    SQLAlchemy does so when somebody asks for the value. The ``model_dump_json`` of an SQLModel does not ask, and would leave it
    out.
    """
    if noted.change.action != "delete" and hasattr(noted.target, "__pydantic_fields__"):
        state: InstanceState[Any] = inspect(noted.target)
        for name in state.expired_attributes.intersection(state.mapper.column_attrs.keys()):
            getattr(noted.target, name)  # the first one loads all
