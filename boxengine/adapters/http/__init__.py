"""Webhooks (extra ``boxengine[http]``): ``transport`` sends, ``guard`` keeps it off private networks, ``signature`` signs.

- **Connections:** ``target`` reads a URL, and ``endpoint`` holds the connections to it. ``tls`` knows whom they trust, with the
  ``client_certificate`` that they show; ``head`` limits how long an answer's head may take.
- **Requests:** ``headers`` says which headers an item may set. ``pause`` knows until when a receiver wants no call
  (``Retry-After``).
- ``checkup`` looks for certificates that nobody has renewed.
"""
