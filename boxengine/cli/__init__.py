"""The command line. Each command is a thin shell around ``app``, in a module of its name.

``main`` has the global options and the exit codes, ``commands`` lists the commands, and ``on_demand`` imports one when somebody
asks for it.

- **Workers:** ``start`` and ``consume`` run on ``lifecycle`` (from the start to the exit code), with ``processes``
  (``--processes``) and its ``child``, ``signals``, ``stacks`` (SIGUSR1) and ``endpoints`` (probes and metrics).
- **Items:** ``create``, with ``lines`` and ``streaming`` for JSON lines. ``items`` has ``items_looking``, ``items_acting`` and
  ``items_replaying``, which share ``item_options``, ``item_view`` and ``left_alone`` (why ids were left alone).
- **Boxes:** ``status`` with ``status_view`` and ``job_status``, ``pausing``, ``cleanup``, ``audit``, ``subscriptions`` with
  ``subscription_view``.
- **Long jobs:** ``jobs`` with ``job_schedules``.
- **Tables and configuration:** ``db`` with ``db_making`` (which goes ``box_by_box``) and ``db_convert``, ``config``, ``doctor``.
- **A beginning:** ``init`` with ``kits``, ``new``, ``demo``, ``servers``, ``web``.
- **For all of them:** ``context`` (configuration and output), ``arguments``, ``ids`` and ``moments`` as people type them,
  ``asking`` (before what cannot be taken back), ``text``.
"""
