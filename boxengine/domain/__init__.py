"""Values and pure decisions that need only the standard library.

- **Boxes and items:** ``box`` (a table and its policy), ``names`` (of boxes and tables), ``item`` and ``item_id``,
  ``attributes`` (what a caller gives to create one), ``new_values`` (what a database would refuse of it), ``codec`` (how
  payloads are written and read), ``partitioning`` (from a key to a bucket).
- **Delivery:** ``job`` (one bucket in the queue), ``outcome`` (what became of a batch's items), ``retry`` (the built-in
  strategies), ``error_logs``, ``bounds`` (how far a bucket is done), ``holding_back`` (a subscription that lags).
- **Boxes with a log:** ``log_progress`` (what a position means, and how a delivery moves it), ``log_moves`` (how people move it).
- **Received messages:** ``message`` and the item that it becomes, ``cloud_event``, ``message_template``.
- **Long jobs:** ``jobs`` (boxes, claimed jobs, ends of attempts), ``job_attributes``, ``contracts`` (typed arguments), ``cron``
  and ``schedules``.
- **Texts and values:** ``json_values`` with ``json_advice``, ``json_members``, ``masking`` (of secrets), ``legible`` (what a
  terminal may show), ``redis_urls``, ``words``.
- **Users' code:** ``signatures`` (the parameters of a function).
"""
