"""Users' coroutines under an engine of threads.

One event loop per process, in a thread of its own (``event_loop``), runs whatever is ``async def``: transports
(``transports`` with their ``surroundings``, a batch's items side by side as ``lanes``) and middlewares (``middlewares``).
Each is wrapped into the plain callable that the rest of the engine knows (``wrapping``), so the loops know nothing of
asyncio. Where middlewares and transports are all asynchronous, items go through both side by side (``abreast``, each on
a ``passage`` of its own).

A thread that waits for a coroutine runs errands for it meanwhile (``visit``): whatever must not leave that thread, above
all the claim's session, is called there on the coroutine's behalf. ``watch`` notices code that blocks the loop,
``unawaited`` a coroutine that a handler made and forgot to await.
"""
