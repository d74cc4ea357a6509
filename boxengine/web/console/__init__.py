"""The console: pages, a JSON API beside them, and who may do what. ``application`` puts it together."""
