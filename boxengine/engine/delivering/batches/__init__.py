"""One batch: ``batch`` claims its rows, admits them, has them sent, settles them, and reports.

``delivery`` makes the parts for a box. ``admission`` decides what may go out now. It asks ``remembered`` (failures that could not
be recorded), ``resting`` (items whose outcomes could not be recorded) and ``strategies`` (of retries). ``recording`` settles,
and ``reporting`` tells the drain. ``kept_back`` tells of items that a middleware kept back, and ``order`` of items that were
overtaken.
"""
