"""Holds: some buckets of one box with their leases, in the hands of one thread.

- **How a thread comes by them:** ``processor`` (a thread's turn), ``taking`` (how it gets a hold), ``idle`` (where threads
  without work wait), ``gathering`` (jobs that one thread takes together), ``vacancies`` (buckets that may be begun without
  a lease). ``attended`` knows the buckets in hand, so that hints reach them; ``at_work`` knows the busy threads.
- **What it does with them:** ``holding`` (the state of a hold), ``keeper`` (renews its leases), ``drain`` (batch after batch),
  ``sizing`` (how large each is). ``careful`` works on buckets whose last holder died. ``follow_up`` passes on what a batch means
  to others; ``gone`` looks for rows that no longer exist.
"""
