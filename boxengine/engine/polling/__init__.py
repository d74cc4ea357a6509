"""Finding rows that are due: the poller's turns, when they happen, and what keeps them from happening.

- **When:** ``tasks`` (what there is to do), ``schedule`` (which of it is due), ``listener`` (hints of writers).
- **What:** ``poller`` (a turn), ``checks`` (which partitions have due rows), ``looks`` (the due rows of one partition),
  ``survey`` (which of many boxes have any rows), ``bounding`` (where reading may begin).
- **What keeps it from happening:** ``partition_leases`` (another worker polls), ``pauses`` (a person has paused the box),
  ``tactics`` made of ``throttlers``, and ``queue_lengths``, by which these decide.
"""
