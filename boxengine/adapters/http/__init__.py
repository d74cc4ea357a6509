"""Webhooks (extra ``boxengine[http]``): ``transport`` sends, ``guard`` keeps it off private networks, ``signature`` signs.

``endpoint`` holds the connections to one URL, ``tls`` knows whom they trust, with the ``client_certificate`` that they show, and
``head`` limits how long an answer's head may take. ``headers`` says which headers an item may set. ``pause`` knows until when a
receiver wants no call (``Retry-After``). ``checkup`` looks for certificates that nobody has renewed.
"""
