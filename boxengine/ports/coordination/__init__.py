"""What workers share. Any of it may be lost at any time; that costs repeated work, but never an item or the order.

``queue`` (buckets with work, and their leases), ``leases`` (duties that one worker at a time has), ``pauses`` and ``job_pauses``,
``wakeups`` (hints of committed rows), ``workers`` (who is alive), ``failures`` (what the database refused to store).
"""
