"""Long jobs: from the queue to their end, without SQL. In reading order:

1. **Create** (``create``). Checked, and inserted through the caller's own transaction.
2. **Claim** (``claimer``). One thread per box claims as many jobs as threads are idle, and more if jobs are short (``pace``).
   Each gets a lease and a fence token and is handed over (``handover``); a job that waits there too long is given back.
   ``aging`` says how many of the claimed jobs may be the oldest, whatever their priority. A commit wakes the thread: through
   ``bells`` within the process, through ``listener`` from elsewhere.
3. **Run** (``runner``). A thread calls the task's handler with a ``Job`` (``handle``), itself, on the event loop or in another
   process (``ways``, ``in_process``), or a ``handle_batch`` with several (``batch``). ``endings`` decides the attempt's
   outcome. ``run`` is what this process knows of a job, above all how long it may assume that the job is still its own.
4. **Record** (``recorder``). One thread per box records the attempts that have ended meanwhile, all in one transaction. The
   exception is a success whose handler wrote through its session: the runner's own thread commits both, or neither.
5. **Keep** (``keeper``). One heartbeat for all claimed jobs of a box extends their leases. Its answer says which jobs are to be
   canceled, and which are lost.
6. **Watch** (``watchdog``). Stops a handler whose lease is about to end. It goes by this process's own clock, so a database
   that does not answer cannot delay it.
7. **Reap** (``reaper``). Every worker takes jobs away from workers that fell silent, and deletes old finished jobs.

Threads that belong to no box go where jobs wait (``sharing``) and take turns by weight and lag (``rotation``).

What a handler gets is made of ``facts``: ``handle`` (a ``Job``), ``async_handle`` for coroutines, ``batch_handle`` for handlers
of many (``batch_handler``), ``process_job`` in another process. ``interrupting`` stops its code, and ``forking`` ends what it
forks.

``scheduler`` creates scheduled jobs when they are due, in whichever worker looks first. ``pausing`` stops claims while a box is
paused. ``pipeline`` is a box as it is configured, ``spans`` reads times that callers give, and ``at_work`` and ``backlog`` count
for people.

Who decides: the store's clock says when a lease is over; the job's token says whose writes count. A worker that was suspended
beyond its lease can write nothing for the job. What its handler does elsewhere in the moment before the watchdog stops it
cannot be undone by anybody; ``job.token`` lets the receiver refuse it. ``timing`` says how the times fit together.
"""
