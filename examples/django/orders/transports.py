"""Where announcements go: here to standard output, in a shop of yours to Kafka or a webhook."""

from boxengine.domain.item import Item


class Announce:
    """Prints each item."""

    def __call__(self, item: Item, payload: bytes) -> None:
        print(item.event_name, item.event_key, payload.decode(), flush=True)
