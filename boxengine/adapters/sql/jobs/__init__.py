"""Long jobs in PostgreSQL and MariaDB: one table for a box's jobs, one for their journal.

**Claim** (``claims``). One short transaction locks rows of the ready index with ``SKIP LOCKED`` and marks them running. On
PostgreSQL it is one statement for jobs without a ``lock_key`` (``claim_together``).
Jobs that wait for their time or for their ``lock_key`` are not in the range that it reads (column ``waits``), however many
there are.

**One at a time.** A running job holds its ``lock_key`` in the column ``holds``, which is unique: two running jobs of one key
cannot be written at all. A claim that meets a job whose key is held sets it aside (``waits`` = 2), without an attempt. When
the holder goes, the statement after it lets the next one of its key go. Between the two there is no gap: a claim keeps a
share lock on the holder's row while it sets jobs aside, so the holder goes either before, and the claim sees that, or after,
and then finds the jobs set aside. Nothing here outlives its transaction, so a pooler in transaction mode does no harm.

**After others** (``followers``). A job that waits for others is not in the claim's range either (``waits`` = 3). Which pairs
are over is found by the look for due jobs, not written by the end of the predecessor.

**Fence** (``writes``). Each claim raises ``token``. Every later write says ``WHERE id AND token AND status = 'running'``,
and a worker whose write meets no row has lost the job.

**Ends** (``ends``). Many attempts' ends are written together, on PostgreSQL with their journal in one statement. Rows are locked
in the order of their ids, there and in heartbeats, so that they cannot wait for each other in a circle.

**Cost.** Neither the lease nor the heartbeat stands in an index, so on PostgreSQL a heartbeat changes no index at all.

**Modules.**

- **Tables:** ``models`` (the mixin, and the journal), ``schema`` (made, verified, printed), ``upgrade`` (from earlier versions).
- **Jobs go in:** ``insert``, with ``wakeup`` (of the workers, at the commit); ``schedules`` (what recurs).
- **Worker:** ``store`` is what the worker asks. It has ``claims`` and ``claim_together``, ``ends``, ``writes``, ``followers``,
  ``reaping`` (changes that time makes), ``looks`` (whether there is anything to do) and ``backlog`` (how many wait). ``unit`` is
  one attempt's writes, with the ``session`` of its handler.
- **In the journal, without Redis:** ``pauses`` of a box, and the live ``workers``.
- **People:** ``desk`` (questions and actions), ``inspection`` (searches and counts), ``checkup`` (what ``boxengine doctor``
  finds).
- **For all of them:** ``rows`` (parts of statements), ``moments`` (the database's clock).
"""
