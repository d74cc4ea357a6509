"""Writing items through Django's own connection: they commit and roll back with ``transaction.atomic()``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.db import router

from boxengine.domain.box import BoxType
from boxengine.errors import InvalidItem

if TYPE_CHECKING:
    from boxengine.engine.create import Creator
    from boxengine.integrations.django.models import InboxItem, OutboxItem


def create_outbox_item(
    model: type[OutboxItem], *, using: str | None = None, partition_by: Any = None, **attributes: Any
) -> int:
    """Inserts one item through Django's connection and returns its id.

    Args:
        model: the box's model.
        using: alias of the database; None: Django's routers choose.
        partition_by: what the bucket is computed from; ``event_key`` if None.
        attributes: fields of the row. ``event_key`` and ``payload`` (bytes or str) are required; ``event_name``, ``options``,
            ``available_at``, ``dedup_key`` and the model's own fields are optional.

    Raises:
        InvalidItem: no event key, a payload of the wrong type, an unknown field.
        UnknownBox: the configuration has no such box.

    Example::

        with transaction.atomic():
            order = Order.objects.create(what="a bicycle")
            create_outbox_item(OrderOutboxItem, event_key=order.pk, payload=b"...", event_name="order_placed")
    """
    alias = _alias(model, using)
    return int(_creator(model, BoxType.OUTBOX, alias).create(alias, attributes, partition_by=partition_by))


def create_outbox_batch(
    model: type[OutboxItem],
    items: Sequence[Mapping[str, Any]],
    *,
    using: str | None = None,
    partition_by: Callable[[dict[str, Any]], Any] | None = None,
) -> list[int]:
    """Inserts many items and returns their ids in the order given.

    Args:
        items: for each item a mapping of fields, as for ``create_outbox_item``.
    """
    alias = _alias(model, using)
    return _creator(model, BoxType.OUTBOX, alias).create_batch(alias, items, partition_by=partition_by)


def create_inbox_item(
    model: type[InboxItem], *, using: str | None = None, partition_by: Any = None, **attributes: Any
) -> int:
    """As ``create_outbox_item``, for a received message."""
    alias = _alias(model, using)
    return int(_creator(model, BoxType.INBOX, alias).create(alias, attributes, partition_by=partition_by))


def create_inbox_batch(
    model: type[InboxItem],
    items: Sequence[Mapping[str, Any]],
    *,
    using: str | None = None,
    partition_by: Callable[[dict[str, Any]], Any] | None = None,
) -> list[int]:
    """As ``create_outbox_batch``, for received messages."""
    alias = _alias(model, using)
    return _creator(model, BoxType.INBOX, alias).create_batch(alias, items, partition_by=partition_by)


def _alias(model: type[OutboxItem | InboxItem], using: str | None) -> str:
    return using or str(router.db_for_write(model))


def _creator(model: Any, side: BoxType, alias: str) -> Creator:
    # Models are not to be imported before Django is set up; and no `manage.py` that creates no item waits for the rest.
    from boxengine.integrations.django.models import InboxItem, OutboxItem  # noqa: PLC0415
    from boxengine.integrations.django.rows import creator  # noqa: PLC0415

    if not (isinstance(model, type) and issubclass(model, OutboxItem | InboxItem)):
        raise InvalidItem(f"a model of boxengine.integrations.django.models is needed, not {model!r}")
    actual: BoxType = model.box_type
    if actual is not side:
        raise InvalidItem(f"{model.__name__} is an {actual} model: use create_{actual}_item for it")
    known: Any = model._meta.concrete_model or model  # not a proxy, which has no box
    return creator(known, alias)
