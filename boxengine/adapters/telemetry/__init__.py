"""Observers and tracers: logs, Prometheus, OpenTelemetry, Sentry."""
