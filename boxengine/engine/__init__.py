"""The engine: an item's whole journey, without SQL, Redis commands or a metrics client.

The journey, with the files in reading order (those of steps 3 to 6 stand in the rooms of ``delivering``):

1. **Write** (``create``). The create middlewares run, the bucket is computed from the event key (``preparing``), and the row
   goes in through the caller's own transaction. The caller commits. A hint with the buckets (``polling/listener``) may wake
   the poller; losing it costs a moment, never an item. If a thread of the worker holds such a bucket, ``attended`` has that
   thread read it once more.
2. **Poll** (``polling``: ``tasks``, ``schedule``, ``poller``). One partition of one box, which is a fixed share of its
   buckets: ask the tactic (``tactics``, ``throttlers``), hold the partition's lease of 4 s (``partition_leases``), read
   which rows are due (``looks``), and queue one job for each bucket that has none queued or in work. A bucket that a hint
   has named is queued without a look (``Schedule.announce``), unless its rows were seen to wait for an earlier one under
   strict order. Now and then a check (``checks``) finds rows that no hint announced. ``pauses`` knows what people paused.
3. **Take** (``holds``: ``processor``, ``taking``). One idle thread waits at the queues of all boxes, the others at ``idle``.
   That thread takes its share of what is there, a *hold*: buckets of one box with their leases. The poller queues through
   ``Processor.dispatch``. If a thread is idle and there are at most four jobs, it leases their buckets and gives them to that
   thread directly. Where one thread suffices for a box, all jobs that are due are gathered (``gathering``). They go to the
   thread that is at work on the box, or, with ``Processor.hand_out`` at the end of the poller's turn, to an idle one. A batch
   that shows a backlog (``sizing``) hands them on to the other threads. Buckets that a writer has just named may be begun
   before the coordinator is asked (``vacancies``); it is asked if they are not done with their first batch. ``keeper`` renews
   the leases and reports to ``holding``, the hold's state.
4. **Drain** (``holds``: ``drain``, sized by ``sizing``). Batch after batch of the buckets whose turn it is. What is done with
   a batch is a ``work``; for outboxes and inboxes that is ``delivery``.
5. **Deliver** (``batches``: ``Batches.run`` in ``batch``). One transaction: *claim* the buckets' locks in the database and
   their due rows (``Claims.open``; the statements stand in ``adapters/sql/dialects``); *admit* what may go out now
   (``admission``, which asks ``resting`` for items that pause because their outcome could not be recorded, ``remembered`` for
   their failures, and ``strategies`` for retries); *send* it (``calls``: ``sending`` as a ``whole``, ``single`` or
   ``awaiting/abreast``, in the order that ``ordering`` keeps, until the ``deadline``; ``transports`` calls the user's code,
   ``answers`` judges what it returned, ``sent`` says what became of each); *settle*, all outcomes in as few statements as
   possible, and commit (``recording``); *report* to the drain (``reporting``).
6. **Go on** (``holds``: ``drain``, ``processor``). Empty buckets are released. The others are read on, shared with idle
   threads, or after a while handed back to the queue so that others get their turn. A long queue takes none (``WhenLong``).

Who decides: the database's lock says who *may* work on a bucket, in the transaction that records the outcome; Redis
says only who should bother to try. So a lost Redis, an expired lease or a paused process can waste work, but cannot lose
or reorder items.

An item may go out twice in three cases:

- The transaction that would record its delivery does not commit, or the database refuses the outcome: the worker was
  killed, the connection or the database failed.
- Its receiver has it, but the attempt counts as failed: ``call_batch`` raised after a part of the batch had gone out, a
  call timed out (``time_limit``) or lost its answer, or a middleware raised after the transports.
- One of its transports took it and a later one did not, or could not be reached: the next attempt calls all of them again.

If a lease or a batch's time runs out, nothing is repeated: ``Deadline`` is not asked between two transports of one item. There is
one exception. If a later transport is ``async def``, ``cutoff_timeout`` cancels its calls (``awaiting/lanes``), and items that
it had not got by then go through all their transports again.

What happens when ...

- **a worker is killed between a transport's answer and the commit:** the claim's transaction ends with its connection, so
  no outcome is recorded, the rows are pending, and the locks are free. Nobody released the leases. They run out within 4 s
  (``timing``; up to 60 s where Redis is slow), and the buckets are queued again as ``Hold.orphaned``. The items that the
  transport took go out once more, with the same ``Idempotency-Key``: at most one batch (500 to 2,000 rows, ``sizing``)
  per thread. ``careful`` sends the first batch of each such bucket whole, with a note outside the process (``care``). A
  worker that dies during that batch leaves its note behind. The next worker sees the note and sends the bucket's items
  one by one, and an item that was alone in hand at three deaths is failed. A batch that began without leases (``vacancies``)
  leaves nothing behind, so that death does not count; its buckets are found by the next look.
- **a batch transport refuses the third of five items under ``strict_order: key``:** ``ordering`` cuts the batch into
  waves that hold no key twice, and ``whole`` hands each wave to the transport in one call. If the five items have five
  keys, they are one wave. The other items of the third item's wave are delivered. The third is a failed attempt with a
  count and a backoff, and its key is blocked, so later items of that key are left out of the next waves. All this is
  committed together. (A transport that raises instead of refusing one item gets the wave again in halves, until the
  guilty items are found: ``Whole._narrow``.) Until the backoff is over, the query gives out neither the item nor its
  followers; ``follow_up`` asks for a poll by then. With ``max_retries`` used up it is failed, and its key stays parked
  until somebody decides.
- **a lease runs out in the middle of a batch:** the ``keeper`` renews leases in a thread of its own, so this happens only if
  Redis is lost, the process was paused, or the hold has been in work for longer than the general timeout.
  ``Deadline.passed`` is asked between any two items, waves or halves that no transport has yet, never inside a transport's
  call. Once the lease has run out, nothing more is begun. What one transport has still goes on to the next, and what has
  gone out is recorded in the same transaction, because the database's lock is still held. The rest stays pending. Another
  worker that takes the bucket meanwhile is refused that lock, and finds the rows settled once it has it. If the renewal
  says that the lease was lost, ``Holding.renewed`` ends the holding for good, whatever later renewals say.

Other journeys, and the file to read next:

- **Logs** (``adapters/sql/log/__init__``): with ``storage: log``, a delivery moves a position and marks no row. Only items
  that failed or wait become rows of the usual kind.
- **Subscriptions** (``Box.source`` and ``Box.readers`` in ``domain/box``): each is a box of its own to the engine, with its
  own positions, queue and leases, and reads the log of the box that items are created in.
- **Job boxes** (``jobs/__init__``): long jobs are not drained. Each is claimed with a lease and a token, run, and recorded.
- **Inboxes** (``consuming/loop``): a source's messages become rows, which are then delivered like any others.

Beside the journey: in ``running``, ``threads`` run these turns and outlive whatever they raise, ``health`` knows whether
each makes progress, ``outages`` tells of a failure once, ``backlog`` measures how far behind the boxes are, and ``worker``
starts and stops it all in order. ``timing`` says how long leases last and how often loops look, and why these numbers fit
together. ``retention`` deletes finished rows. In ``delivering``, ``order`` notices items that overtook each other before
they were committed; ``circuits``, made of ``breaker``, leave a transport alone that reaches nobody; ``detour`` leads past
the items that wait for it; and ``time_limit`` gives up a call that hangs.

What people ask for: ``item_actions`` retries, discards and deletes items, and ``replaying`` sends delivered ones again, both in
``id_batches``. ``audit`` looks at what has become of the items, and ``checkup`` has rules for the servers.

Used everywhere: ``answers`` judges what users' code returned, ``attempt`` puts into words what it raised, ``tracking`` guards
users' error trackers, and ``observation`` stands in where nobody watches.
"""
