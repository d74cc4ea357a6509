"""From a bucket's lease to the outcomes of its items: the processor, the batches it sends, and what guards users' code.

``boxengine.engine`` tells the journey. Here are its modules by what they do.

- **Coming by buckets:** ``processor`` (a thread's turn), ``taking`` (how it gets a hold), ``idle`` (where threads without work
  wait), ``gathering`` (jobs that one thread takes together), ``vacancies`` (buckets that may be begun without a lease).
  ``attended`` knows the buckets in hand, so that hints reach them; ``at_work`` knows the busy threads.
- **Holding them:** ``holding`` (the state of a hold), ``keeper`` (renews its leases), ``drain`` (batch after batch), ``sizing``
  (how large each is), ``work`` (the door to what is done with a batch). ``careful`` works on buckets whose last holder died,
  with the notes of ``care``. ``follow_up`` passes on what a batch means to others; ``gone`` looks for rows that no longer exist.
- **One batch:** ``delivery`` (makes the parts for a box, as its ``pipeline`` says), ``batch`` (claim, admit, send, settle,
  report), ``admission`` (asks ``remembered``, ``resting`` and ``strategies``), ``sending`` (within ``deadline`` and
  ``ordering``; ``sent`` is the result), ``recording``, ``reporting``. ``kept_back`` tells of items that a middleware kept back,
  and ``order`` of items that were overtaken.
- **Calling users' code:** ``transports`` (of every shape, and which of them take an item), ``whole`` (a batch in one call),
  ``single`` (item by item, on the ``legs`` of its way), ``middleware``, ``decoding`` (for transports that take ``decoded``),
  ``results`` (what ``call_batch`` may return), ``time_limit``, ``undoing`` (of a savepoint), ``watch`` (where calls are
  reported).
- **Receivers that are away:** ``breaker`` (one circuit), ``circuits`` (those of a box), ``detour`` (past the items that wait).
"""
