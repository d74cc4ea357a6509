"""The calls of users' code for the items of a batch: ``sending`` makes them, and ``sent`` says what became of each item.

- **Which, and until when:** ``pipeline`` (a box's transports and middlewares), ``transports`` (of every shape, and which of them
  take an item), ``ordering`` (no key twice at the same time, and none past its failure), ``deadline``.
- **How:** ``whole`` (a batch in one call), ``single`` (item by item, on the ``legs`` of its way), ``middleware`` (around an item
  or a batch), ``decoding`` (for transports that take ``decoded``), ``results`` (what ``call_batch`` may return), ``undoing`` (of
  a savepoint), ``time_limit``, ``watch`` (where calls are reported).
"""
