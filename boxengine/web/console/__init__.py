"""The console: pages, a JSON API, and access control. ``application`` puts it together.

- **Each request:** ``calls`` (what all routes share), ``access`` (who may do what), ``guard`` (security headers, and the host's
  name), ``answers`` (responses that no text of an item can break). ``site`` has everything that they need, assembled once.
- **Pages:** ``pages`` and ``job_pages``, with ``paging`` (through lists) and ``rendering`` (templates and their filters).
- **JSON:** ``api`` and ``job_api`` (the console for programs), ``job_routes`` (long jobs over HTTP, version 1), ``reference``
  (the routes of sbmt-outbox). ``openapi`` describes the API, with ``openapi_jobs`` and ``openapi_parts``.
- **Input:** ``parsing``, ``job_parsing``, ``replaying`` (the options of a replay).
- **Output:** ``showing`` and ``job_showing`` (JSON for API and pages), ``hiding`` (what is never shown).
- **Up to date:** ``live`` (one look that all tabs share), ``events`` (sends it to them), ``figures`` (of one box; they change
  slowly).
- **Actions:** ``acting`` (on items, which ``windows`` finds), ``job_acting`` (on long jobs). ``errands`` runs both in the
  background.
"""
