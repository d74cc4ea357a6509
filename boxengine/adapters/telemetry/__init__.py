"""Observers and tracers: logs, Prometheus, OpenTelemetry, Sentry.

``combined`` makes one observer, or tracer, of several.

- **Logs:** ``logs`` (the form of lines), ``tags`` (which box, bucket and item a line is about), ``background`` (the thread that
  writes them). ``log_observer`` says what happens, with ``job_logs`` for long jobs. ``liveness_log`` says what the probes find.
- **Metrics:** ``families`` (every metric), ``prometheus`` (counts and exposes), with ``jobs`` for long jobs, ``ledger`` (numbers
  that outlive their process).
- **Probes of several processes:** ``progress`` (whether the others' loops are alive, read from their ledgers).
- **Traces:** ``opentelemetry``.
- **Errors:** ``sentry``.
"""
