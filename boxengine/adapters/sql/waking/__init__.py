"""Wake-ups: ``listen`` hears them in the worker; ``telling`` says of what, and ``after_commit`` and
``eased_notify`` send them from the application."""
