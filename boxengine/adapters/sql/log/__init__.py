"""``storage: log``: items are appended, and a delivery moves a position (PostgreSQL 13 and later).

**Tables.** A box over the table ``t`` has three. ``t_log`` holds the items as they were written, each with the id of the
transaction that wrote it (``xact``), and is never updated by a delivery. ``t_positions`` says for each bucket what has been
passed. ``t`` itself, of the shape it has without a log, is the *side table*: there stand the items that need more than one
attempt, or a person. Ids of both come from one sequence, so an item keeps its id when it steps aside.

**Order.** Ids do not follow commits: a lower one may become visible later. So a position is no id but a snapshot, as in
PgQ's published design. ``passed`` holds what the server said of running transactions at some moment; every row of the bucket
that was visible then has been passed. A *batch* is what lies between ``passed`` and a later snapshot: the rows of
transactions that began to be visible in between, whatever their ids are. Within it the items go out by id, and ``place`` is
the last id passed. The next batch begins with the later snapshot. Nothing is skipped, since a row is either visible in a
snapshot or comes with a later one; a transaction that stays open holds back its own rows alone.

An item that was committed before another was written has the lower id, and stands in the same batch or an earlier one: so
it goes out first, also where nobody serialises the writers of a key. A batch must not be cut by transaction ids instead: a
transaction that got its id early may write its item late.

**A claim** (``statements``) takes the buckets' locks as ever, and in the same round trip reads positions, the current
snapshot, the rows (``reading``) and what is due in the side table (``texts``). It asks for the snapshot before it
writes anything: a transaction sees its own rows, and what a handler puts into the log must come with a later snapshot.
A claim of many buckets goes from one to the next until it is full (``Portions`` in ``domain/log_progress``). It knows nothing of
buckets to which it has not come, and moves no position of theirs; they come first in the next claim.

**A settlement** writes in one transaction: the outcomes of side rows; a copy in the side table of each item that failed,
with its outcome; and the new positions (``domain/log_progress``). An item without an outcome that stands before a settled
one is copied too, pending and untried. Under ``strict_order: key`` so are items whose key has a waiting or failed row in
the side table; under ``strict_order: true`` the bucket's log rests while such a row is there. A bucket's due side rows go
out before, or together with, the rows of its log. So a position never has to remember single items.

**Cost.** A small batch is read through the index ``(bucket, xact, id)``: one range for what began after ``passed``, with the
transactions that still run left out of it, and one look for each that ran then and has ended. A batch larger than a claim
is measured once (``floor``, ``ceiling``) and then read by ``(bucket, id)``, a claim at a time. Neither walks over what was
delivered, however old ``passed`` is and whatever holds back vacuum.

**Whose transactions.** Numbers of transactions mean something on one server only. Each position carries that server's own
identifier. On another server (a restored dump, a logical copy), or where the numbers have gone back (``pg_resetwal``), positions
say nothing. The worker then brings the log over (``going_on``, ``foreign``): what may not have been delivered steps aside, into
the side table, and goes out by id; the log goes on behind it. Only what a worker cannot know is left to a person
(``boxengine db reposition``). A physical replica that was promoted keeps numbers and identifier: its positions are as old as its
rows.

**Modules.**

- **What there is:** ``tables`` (their names and columns), ``parts`` (the statement that makes each), ``partitions`` (of the log,
  by transaction), ``readers`` (the box itself, or its subscriptions), ``stage`` (where a box is between table and log).
- **Delivery:** ``statements`` (all of a box), ``reading`` (the questions to the log), ``look`` (what one claim may give of the
  rows found), ``texts`` (where log and side table meet).
- **Retention:** ``turnover`` (makes partitions ahead of time, empties those that every reader has passed, drops the empty ones).
- **Moves:** ``moving`` (a position, as a person decides), ``under_way`` (what that person is told if a delivery lasts too long).
- **Another server:** ``foreign`` (brings positions over), ``in_doubt`` (which rows may not have been delivered), ``going_on``
  (has a worker do all that by itself).
"""
