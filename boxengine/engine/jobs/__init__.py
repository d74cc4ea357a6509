"""Long jobs: from the queue to their end, without SQL. In reading order:

1. **Create** (``create``). Checked, and inserted through the caller's own transaction.
2. **Claim** (``claimer``). One thread per box takes as many jobs as threads are idle, and more where jobs are short (``pace``),
   each with a lease and a fence token, and hands them over (``handover``). What waits for long is given back. ``aging`` says
   how many of them may be the oldest, whatever their priority. A commit wakes it:
   ``bells`` within the process, ``listener`` from elsewhere.
3. **Run** (``runner``). A thread calls the task's handler with a ``Job`` (``handle``), itself, on the event loop or in another
   process (``ways``, ``in_process``). ``endings`` says what an attempt leads to. ``run`` is what this process knows of a job:
   until when it may believe to hold it.
4. **Record** (``recorder``). One thread per box records all ends that have gathered in one transaction. Only success with what
   the handler's session has written is committed by the runner's own thread: both, or neither.
5. **Keep** (``keeper``). One heartbeat for all claimed jobs of a box prolongs their leases and says which ones are to
   be canceled, and which were lost.
6. **Watch** (``watchdog``). Stops a handler whose lease is about to end, by this process's own clock, whatever the database
   does.
7. **Reap** (``reaper``). Every worker takes jobs away from workers that fell silent, and deletes what is old.

Threads that belong to no box go where jobs wait (``sharing``), with turns by weight and lag (``rotation``).

Beside them, ``scheduler`` creates jobs when their time comes, in whichever worker looks first.

Who decides: the store's clock says when a lease is over, its token says whose writes count. A worker that was suspended
beyond its lease can write nothing for the job. What its handler does elsewhere in the moment before the watchdog stops it
cannot be undone by anybody; ``job.token`` lets the receiver refuse it. ``timing`` says how the times fit together.
"""
