"""Wake-ups: ``listen`` hears them in the worker; ``after_commit`` and ``eased_notify`` send them from the application."""
