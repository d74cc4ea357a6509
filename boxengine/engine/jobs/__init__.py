"""Long jobs: from the queue to their end, without SQL. In reading order:

1. **Create** (``create``). Checked, and inserted through the caller's own transaction.
2. **Claim** (``claimer``). One thread per box takes as many jobs as threads are idle, each with a lease and a fence token,
   and hands them over (``handover``). So a claimed job begins at once. A commit wakes it: ``bells`` within the process,
   ``listener`` from elsewhere.
3. **Run** (``runner``). A thread calls the task's handler with a ``Job`` (``handle``), then records how the attempt ended.
   ``run`` is what this process knows of a running job: until when it may believe to hold it.
4. **Keep** (``keeper``). One heartbeat for all running jobs of a box prolongs their leases and brings back who is canceled,
   and who was lost.
5. **Watch** (``watchdog``). Stops a handler whose lease is about to end, by this process's own clock, whatever the database
   does.
6. **Reap** (``reaper``). Every worker takes jobs away from workers that fell silent, and deletes what is old.

Beside them, ``scheduler`` creates jobs when their time comes, in whichever worker looks first.

Who decides: the store's clock says when a lease is over, its token says whose writes count. A worker that was suspended
beyond its lease can write nothing for the job. What its handler does elsewhere in the moment before the watchdog stops it
cannot be undone by anybody; ``job.token`` lets the receiver refuse it. ``timing`` says how the times fit together.
"""
