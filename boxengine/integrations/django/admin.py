"""Django's admin for boxes: it shows items, and offers two actions on them.

::

    @admin.register(OrderOutboxItem)
    class OrderOutboxItemAdmin(BoxItemAdmin): ...
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from boxengine.domain.names import box_name
from boxengine.integrations.django import configuration
from boxengine.ports import ItemFilter

MOST = 10_000
"""Items that one list or action may have. A box has millions of rows, and each page would count them all."""


class FirstItems(Paginator):
    """The pages of a list's first items."""

    @cached_property
    def count(self) -> int:
        """At most ``MOST``, whatever the list's order is."""
        return int(self.object_list.order_by()[:MOST].count())


class RecentEventNames(admin.AllValuesFieldListFilter):
    """The event names of the newest items. Django's own filter would read the whole table for each page."""

    def __init__(
        self, field: Any, request: HttpRequest, params: Any, model: Any, model_admin: Any, field_path: str
    ) -> None:
        super().__init__(field, request, params, model, model_admin, field_path)
        newest = model_admin.get_queryset(request).order_by("-pk").values_list(field_path, flat=True)[:MOST]
        self.lookup_choices = sorted(set(newest), key=lambda each: each or "")


class BoxItemAdmin(admin.ModelAdmin):
    """Shows items without changing their fields, and retries or discards the selected ones."""

    list_display: ClassVar[Any] = (
        "id",
        "event_name",
        "event_key",
        "status",
        "errors_count",
        "created_at",
        "processed_at",
    )
    list_filter: ClassVar[Any] = ("status", ("event_name", RecentEventNames))
    search_fields: ClassVar[Any] = ("event_key__exact",)
    ordering: ClassVar[Any] = ("-id",)
    paginator = FirstItems
    show_full_result_count = False
    actions: ClassVar[Any] = ("retry", "discard")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Also finds an id. Django looks for ids as texts, and for texts in any case: no index would do."""
        found, may_repeat = super().get_search_results(request, queryset, search_term)
        if search_term.isdecimal():
            found |= queryset.filter(pk=search_term)
        return found, may_repeat

    def has_add_permission(self, _request: HttpRequest, *_given: Any) -> bool:
        """Items come from ``create_outbox_item``, which computes their bucket."""
        return False

    def has_change_permission(self, request: HttpRequest, item: Any = None) -> bool:
        """For the actions. An item's page has no button to save: it would write back what a worker has changed meanwhile."""
        return item is None and super().has_change_permission(request)

    def has_delete_permission(self, _request: HttpRequest, *_given: Any) -> bool:
        """Retention deletes finished items."""
        return False

    def get_readonly_fields(self, _request: HttpRequest, _item: Any = None) -> list[str]:
        """All fields, because a worker may be working on the row."""
        return [*self._names(), "readable_payload"]

    def get_fields(self, _request: HttpRequest, _item: Any = None) -> Any:
        """All fields, unless the class names them."""
        return self.fields or ["readable_payload" if name == "payload" else name for name in self._names()]

    @admin.display(description="payload")
    def readable_payload(self, item: Any) -> str:
        """As text if it is one: Django shows bytes as Python writes them, in which only English can be read."""
        payload = bytes(item.payload)
        try:
            return payload.decode()
        except UnicodeDecodeError:
            return repr(payload)

    def _names(self) -> list[str]:
        return [field.name for field in self.model._meta.concrete_fields]

    @admin.action(description="Retry: deliver these items again as soon as possible", permissions=["change"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Failed, discarded and waiting items become due; retry strategies apply."""
        self._act("retry", request, queryset)

    @admin.action(description="Discard: never deliver these items", permissions=["change"])
    def discard(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Pending and failed items become discarded."""
        self._act("discard", request, queryset)

    def _act(self, action: Literal["retry", "discard"], request: HttpRequest, queryset: QuerySet[Any]) -> None:
        from boxengine.app.servers.connected import connect  # noqa: PLC0415 - slow, and every `manage.py` imports this module
        from boxengine.engine.item_actions import Action, ItemActions  # noqa: PLC0415

        ids = tuple(queryset.values_list("pk", flat=True)[: MOST + 1])
        if not ids:  # a filter without ids would mean all failed items
            self.message_user(request, "none of these items is on the list any more", messages.WARNING)
            return
        if len(ids) > MOST:  # more than the list has shown
            what_to_do = f"Filter the list, or use boxengine items {action}"
            self.message_user(request, f"more than {MOST:,} items: none was changed. {what_to_do}", messages.ERROR)
            return
        # Where rows are written: the list may come from a replica.
        boxes = configuration.boxes(queryset.select_for_update().db)
        servers = connect(boxes.resolved.settings)
        try:
            which = ItemFilter(ids=ids)
            box = boxes.box(box_name(self.model._meta.concrete_model))
            tally = ItemActions(servers.items, servers.memory).run(box, Action(action), which)
        finally:
            servers.close()
        level = messages.WARNING if tally.left else messages.SUCCESS
        left = f"; {tally.left} left alone (in work, finished, or changed meanwhile)" if tally.left else ""
        self.message_user(request, f"{tally.changed} changed{left}", level)
