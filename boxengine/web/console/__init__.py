"""The console: pages, a JSON API, and access control. ``application`` puts it together."""
