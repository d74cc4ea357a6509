"""Coordination over Redis (or Valkey): who works on what. Nothing here may be needed for correctness.

Needs Redis 6.0.6 or later (``LPOS``, fractions of a second in ``BRPOP``) or any Valkey.

===================================================  =========================================================
key                                                  value
===================================================  =========================================================
``{box}:job_queue``                                  list, LPUSH and BRPOP; ``bucket:unix_seconds:id,id,id``
``{box}:queued``                                     hash, bucket to the element that lies in the queue for it
``{box}:wanted``                                     set of buckets pushed again while they were in work
``sbmt:outbox:processor:{box}:{bucket}:lock``        lease on a bucket: token, with a time limit
``{box_type}:{box}:{item_id}``                       an item's remembered failures, JSON, with a time limit
``Sbmt::Outbox::Api::OutboxClass:{box}``             hash with ``polling_enabled`` (``InboxClass`` for an inbox)
``boxengine:in_work:{box}``                          hash, the buckets that a worker has begun and not released
``boxengine:in_hand:{box}``                          hash, what a worker sends with care at the moment
``boxengine:worker:{id}``, ``boxengine:workers``     what a live worker says of itself, and the ids of all
``boxengine:attempts:{box}``, ``boxengine:history``  failed attempts and figures of the past, for the console
``boxengine:console:trail``                          what people did
``boxengine:wakeups``                                channel of ``wakeup: redis``
===================================================  =========================================================

``queued``, ``wanted`` and what begins with ``boxengine:`` are our own. The others, and the leases of further duties beside the
buckets', are those of sbmt-outbox, so both may work side by side on one server.
A FLUSHALL at any moment costs time, and pauses of boxes, but never an item and never the order.

The modules:

- **The server:** ``connection`` (the client, its time limits, its errors), ``keys`` (the names of keys), ``script`` (calls
  scripts fast), ``foreign`` (what another program wrote under our names).
- **Buckets:** ``queue`` (those with work) and its ``queue_scripts``, ``bucket_leases`` (renews and frees them), ``in_hand``,
  ``failures`` (which the database refused to store).
- **Workers:** ``workers`` (who lives), ``leases`` (on further duties), ``pauses`` (of boxes), ``wakeups``.
- **People:** ``attempts``, ``history``, ``trail``, ``checkup`` (what ``boxengine doctor`` finds).
"""
