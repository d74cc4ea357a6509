"""From a bucket's lease to the outcomes of its items, in four rooms.

``boxengine.engine`` tells the journey. An item passes the rooms in this order:

- ``holds``: how a thread comes by buckets, works on them batch after batch, and lets them go.
- ``batches``: one batch, from the claim of its rows to the commit of their outcomes.
- ``calls``: what is done with the items in between: users' code is called, and its answers become results.
- ``receivers``: circuits of receivers that are away, and the way past the items that wait for them.

Between them stand ``work``, the door through which a hold has a batch delivered, and ``care``, the notes on buckets whose last
holder died. ``holds`` knows ``batches`` by that door alone.
"""
