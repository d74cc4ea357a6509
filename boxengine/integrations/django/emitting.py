"""Items for changes of a Django model, written in the transaction that writes the change.

::

    @emits("orders.OrderOutboxItem", payload=lambda order: json.dumps({"id": order.pk, "total": order.total}))
    class Order(models.Model): ...

    Order.objects.create(total=12)      # an item "order_created" commits with the order, or neither does

Django reports changes through its signals. ``save()`` and ``delete()`` send them, and so do ``objects.create()``,
``get_or_create()``, ``update_or_create()``, the admin, and ``delete()`` of a queryset. ``bulk_create()``, ``bulk_update()``,
``update()`` of a queryset, raw SQL and cascades within the database send none: see ``emit``. Fixtures emit nothing either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.apps import apps
from django.db import models, router, transaction
from django.db.models.signals import class_prepared, post_delete, post_save, pre_save

from boxengine.errors import InvalidItem
from boxengine.integrations.django.creating import create_outbox_batch
from boxengine.integrations.emissions import Change, Emission, Maker, Source, asked, objects_of

__all__ = ["Change", "emit", "emits"]

T = TypeVar("T", bound=type[Any])

_EMISSIONS = "__box_emissions__"
_BEFORE = "_boxengine_before"
"""The attribute in which an object keeps its row's earlier values between ``pre_save`` and ``post_save``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEmission(Emission):
    """What one ``@emits`` of a Django model specifies."""

    model: type[Any] | str

    @property
    def outbox(self) -> Any:
        """The outbox's model; a label can be resolved only when all models are loaded."""
        return apps.get_model(self.model) if isinstance(self.model, str) else self.model

    def primary_key(self, target: Any) -> Any:
        return target.pk

    def named_class(self, target: Any) -> type[Any]:
        """The concrete model, not a proxy: a change through a proxy of ``Order`` is a change of an ``Order``."""
        found: type[Any] = target._meta.concrete_model
        return found


def emits(
    model: type[Any] | str,
    *,
    payload: Maker,
    on: Sequence[str] = ("insert", "update", "delete"),
    when: Maker | None = None,
    event_name: Source = None,
    event_key: Source = None,
    options: Maker | None = None,
) -> Callable[[T], T]:
    """A class decorator: saving or deleting an object writes an item to an outbox, in the same transaction.

    If no transaction is open, ``save()`` opens one. Each callable gets the object, and a ``Change`` if it takes a second
    argument. Subclasses and proxies of the model emit, too.

    Args:
        model: the outbox's model, or its label, such as ``"orders.OrderOutboxItem"``.
        payload: makes the payload, bytes or str.
        on: ``insert``, ``update``, ``delete``, or some of them. An update counts if a column's value changed; to find that
            out, ``save()`` reads and locks the row first, which costs one more query.
        when: whether to emit an item; always if None.
        event_name: a name, or a callable; ``order_created``, ``order_updated``, ``order_deleted`` if None.
        event_key: an attribute's name, or a callable; the primary key if None.
        options: makes the item's options.

    Raises:
        InvalidItem: ``on`` names an unknown action, another argument is none that a save could call, or the decorated class
            is not a model.

    Example::

        @emits("orders.OrderOutboxItem", on=["update"], when=lambda order, change: "status" in change.before,
               event_key="customer_id", payload=lambda order: order.as_json())
        class Order(models.Model): ...
    """
    emission = ModelEmission(
        model=model,
        **asked(payload=payload, on=on, when=when, event_name=event_name, event_key=event_key, options=options),
    )

    def decorate(mapped: T) -> T:
        if not issubclass(mapped, models.Model):
            raise InvalidItem(f"emits: a model of Django's is needed, not {mapped!r}")
        setattr(mapped, _EMISSIONS, (*emissions_of(mapped), emission))
        _save_in_one_transaction(mapped)
        _listen(mapped, emission)

        def follow(sender: type[models.Model], **_sent: Any) -> None:
            if issubclass(sender, mapped):
                _listen(sender, emission)

        class_prepared.connect(follow, weak=False)
        return mapped

    return decorate


def emissions_of(model: type[Any]) -> Sequence[ModelEmission]:
    """The ``@emits`` decorations of the model and of those that it derives from."""
    found: Sequence[ModelEmission] = getattr(model, _EMISSIONS, ())
    return found


def emit(objects: Iterable[Any], *, action: str = "update", using: str | None = None) -> list[int]:
    """Writes items for these objects as if each had been saved or deleted, and returns the items' ids.

    For changes that send no signals; call it in the transaction that makes the change::

        with transaction.atomic():
            emit(Order.objects.bulk_create(orders), action="insert")

    Args:
        action: ``insert``, ``update`` or ``delete``. ``Change.before`` is empty.
        using: alias of the database; None: the one to which ``save()`` would write each object.

    Raises:
        InvalidItem: an object's model has no ``@emits``, or ``action`` is unknown.
    """
    found = objects_of(objects, action)
    change = Change(action=action, before={})
    batches: dict[tuple[Any, str], list[dict[str, Any]]] = {}
    for each in found:
        emissions = emissions_of(type(each))
        if not emissions:
            raise InvalidItem(f"emit: {type(each).__name__} has no @emits")
        alias = using or router.db_for_write(type(each), instance=each)
        for emission in emissions:
            attributes = emission.attributes(each, change)
            if attributes is not None:
                batches.setdefault((emission.outbox, alias), []).append(attributes)
    ids: list[int] = []
    for (outbox, alias), rows in batches.items():
        ids += create_outbox_batch(outbox, rows, using=alias)
    return ids


# ── Django's signals ─────────────────────────────────────────────────────────────────────────────────


def _save_in_one_transaction(mapped: Any) -> None:
    """Makes ``save()`` open a transaction: without one, Django sends ``post_save`` only after its commit."""
    inherited = mapped.save_base
    if getattr(inherited, _EMISSIONS, False):
        return  # the class, or one that it derives from, is decorated already

    def save_base(self: Any, *args: Any, using: str | None = None, **options: Any) -> None:
        using = using or router.db_for_write(type(self), instance=self)
        try:
            with transaction.atomic(using=using, savepoint=False):
                inherited(self, *args, using=using, **options)
        finally:
            self.__dict__.pop(_BEFORE, None)

    setattr(save_base, _EMISSIONS, True)
    mapped.save_base = save_base


def _listen(mapped: type[Any], emission: ModelEmission) -> None:
    if mapped._meta.abstract:
        return  # never saved; its subclasses are
    saves = emission.actions & {"insert", "update"}
    if "update" in saves:
        pre_save.connect(_before_save, sender=mapped, dispatch_uid="boxengine.emits")
    if saves:
        post_save.connect(_after_save(emission), sender=mapped, weak=False)
    # When Django deletes a child of a decorated model, it deletes the parent's row, too, and signals both. A proxy has no row
    # of its own, and is signalled alone.
    parents = mapped._meta.concrete_model._meta.parents
    inherits = any(each is emission for parent in parents for each in emissions_of(parent))
    if "delete" in emission.actions and not inherits:
        post_delete.connect(_after_delete(emission), sender=mapped, weak=False)


def _before_save(sender: type[Any], instance: Any, *, raw: bool, using: str, **_sent: Any) -> None:
    """Remembers the row's values, and locks the row, so that nobody changes it before the save."""
    keys = instance._meta.pk_fields
    new = instance._state.adding and all(field.has_default() or field.has_db_default() for field in keys)
    if raw or new or instance.pk is None:
        setattr(instance, _BEFORE, None)
        return
    rows = sender._base_manager.using(using).filter(pk=instance.pk)
    names = [field.attname for field in _columns(sender)]
    setattr(instance, _BEFORE, rows.order_by().select_for_update().values(*names).first())


def _after_save(emission: ModelEmission) -> Callable[..., None]:
    def tell(instance: Any, *, created: bool, raw: bool, using: str, update_fields: Any, **_sent: Any) -> None:
        before = getattr(instance, _BEFORE, None)
        if raw:
            return
        action = "insert" if created else "update"
        changed = {} if created else _changed(instance, before or {}, update_fields)
        if created or changed:
            _write(emission, instance, Change(action=action, before=changed), using)

    return tell


def _after_delete(emission: ModelEmission) -> Callable[..., None]:
    def tell(instance: Any, *, using: str, **_sent: Any) -> None:
        _write(emission, instance, Change(action="delete", before={}), using)

    return tell


def _write(emission: ModelEmission, instance: Any, change: Change, using: str) -> None:
    attributes = emission.attributes(instance, change)
    if attributes is not None:
        create_outbox_batch(emission.outbox, [attributes], using=using)


def _columns(model: type[Any]) -> list[Any]:
    return [field for field in model._meta.concrete_fields if not field.primary_key]


def _changed(instance: Any, before: dict[str, Any], update_fields: Any) -> dict[str, Any]:
    """The columns whose values this save changed, with their earlier values."""
    deferred = instance.get_deferred_fields()
    found = {}
    for field in _columns(type(instance)):
        name = field.attname
        written = update_fields is None or field.name in update_fields or name in update_fields
        if written and name not in deferred and _differs(field, getattr(instance, name), before.get(name)):
            found[name] = before.get(name)
    return found


def _differs(field: Any, now: Any, before: Any) -> bool:
    """Whether the value changed. An expression such as ``F("total") + 1`` always counts: only the database knows its value."""
    if hasattr(now, "resolve_expression"):
        return True
    if isinstance(field, models.FileField):
        now = field.get_prep_value(now)  # no file at all is stored as an empty text
    return bool(field.to_python(now) != before)
