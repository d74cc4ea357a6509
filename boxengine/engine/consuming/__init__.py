"""The inbox side: stores each message of a source as a row of a box, exactly once.

``loop`` takes the messages batch by batch, and ``tally`` counts what became of each. ``rules`` compute attributes of items as
the configuration says. ``former_rows`` and ``repetitions`` look at messages that are stored already. ``dead_letters`` keeps
those that cannot become items, and ``stopped`` the partitions whose next message can be kept nowhere.
"""
