"""Webhooks (extra ``boxengine[http]``): ``transport`` sends, ``guard`` keeps it off private networks, ``signature`` signs.

``endpoint`` holds the connections to one URL. ``headers`` says which headers an item may set. ``pause`` knows until when a
receiver wants no call (``Retry-After``).
"""
