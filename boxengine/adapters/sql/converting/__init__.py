"""``boxengine db convert``: a box goes from ``storage: table`` to ``storage: log``, or back, while writers and workers run.

A box is in one of three stages (``stage``), and each command goes one stage on, in one transaction (``conversion``):

::

    TABLE  ── --to log ──►           BOTH  ── --to log --finish ──►  LOG
           ◄── --to table --finish ──      ◄── --to table ──

In BOTH there is a log, and a trigger moves each item that is written to it into the table, in the statement that wrote it. So all
items are in the table, whatever the configuration of the process that wrote them. A worker of either configuration delivers
them: one with ``storage: log`` reads its side table, which is this table, and a log without rows. So the new configuration is
deployed in this stage, to processes in any order, and nothing waits for it. In LOG the trigger goes the other way
(``redirects``): what a process with the old configuration writes to the table is moved into the log.

What could lose an item or turn a key's items around, and why it does not:

a. *Writers whose transactions are open at the switch.* The switch locks table and log in ``SHARE ROW EXCLUSIVE`` mode. It gets
   the locks when no transaction is open that has written to either; who writes later finds the triggers as the switch left
   them, even if its transaction or its snapshot is older. A writer waits for the switch for at most the lock timeout, which is
   shorter than PostgreSQL's ``deadlock_timeout``: so the switch gives up, and no writer is ended. It tries again later. On the
   way back the writer also waits for the copy of what was written since most of the log was copied (g).
b. *Writers of both configurations at once.* All of them write to one place: the trigger is part of their statement and of their
   transaction. It fires after the row was inserted, so ``RETURNING`` gives the id as ever.
c. *Workers of both configurations at once.* In BOTH that is harmless. They take the same locks of buckets. In LOG a worker with
   ``storage: table`` would leave the log alone; it finds the stage in the table's comment, at start and while it runs, and
   says so instead.
d. *A command that is killed.* Each stage begins with a commit, and each command looks at the database for the stage it is in.
   What was copied out of the log before the switch stays copied, and its positions have passed it.
e. *Ids.* Log and table draw them from one sequence, and a redirected item keeps the one it got. An item is in both only if it was
   copied out of the log, and then the log's position has passed it.
f. *Failed, waiting and parked items* stay where they are, in the table: it is the log's side table. Their keys' items in the log
   wait for them, as with any log.
g. *Back to the table*, items that are still in the log come before those that will be written to the table. First most of them
   are copied, bucket by bucket, under the locks that a delivery takes, while writers go on. Then, under the locks of all
   buckets and of both tables, the rest is copied, and the trigger goes the other way, in one transaction.
"""
