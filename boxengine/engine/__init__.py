"""The engine: an item's whole journey, without SQL, Redis commands or a metrics client.

1. **Write** (``create``). The bucket is computed from the event key, the create middlewares run, and the row goes in
   through the caller's own transaction. The caller commits. A hint with the bucket (``listener``) may wake the poller;
   losing it costs a moment, never an item.
2. **Poll** (``polling``: ``tasks``, ``schedule``, ``poller``, ``tactics``). One partition of one box: ask its tactic, hold
   its lease, read which rows are due (``looks``), and queue one job for each bucket that has none queued or in work. A
   bucket that a hint has named is queued without a look. Now and then a check (``checks``) finds what no hint told.
3. **Take** (``processor``). One thread waits at the queues of all boxes; it takes its share of what is there, with the
   leases of the buckets (renewed by ``keeper``).
4. **Deliver** (``delivery``, ``sending``, ``transports``). One transaction: the buckets' locks in the database, the due
   rows, the retry strategies' say about rows tried before, the transports through the middlewares, all outcomes in as
   few statements as possible, commit.
5. **Settle** (``processor``). On with the next rows of the same buckets until they are empty; then their leases go
   free, or, after a while, back to the queue so that others get their turn.

Who decides: the database's lock says who *may* work on a bucket, in the transaction that records the outcome; Redis
says only who should bother to try. So a lost Redis, an expired lease or a paused process can waste work, and can
neither lose an item nor turn two around.

``threads`` run these turns and outlive whatever they raise; ``health`` knows whether each makes progress; ``outages``
tells of a failure once; ``timing`` says how long leases last and how often loops look, and why these numbers fit
together; ``retention`` deletes finished rows; ``backlog`` measures how far behind the boxes are; ``order`` notices items
that overtook each other before they were committed; ``circuits``, made of ``breaker``, leave a transport alone that
reaches nobody, and ``time_limit`` gives up a call that hangs; ``worker`` starts and stops it all in order.
Apart from all that, ``audit`` looks at what has become of the items.
"""
