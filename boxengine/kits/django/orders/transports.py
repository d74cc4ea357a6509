from boxengine import Item


class Announce:
    """Where events go. Call your own service here, or name `kafka` or `http` in the settings in its place."""

    def __call__(self, item: Item, payload: bytes) -> None:
        print(item.event_name, item.event_key, payload.decode(), flush=True)
