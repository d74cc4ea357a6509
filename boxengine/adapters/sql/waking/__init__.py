"""Wake-ups. ``listen`` hears them in the worker; ``telling`` says of what they tell.

In the application, ``eased_notify`` decides who notifies: the transaction itself (``notifying``), or a thread or task
after its commit (``after_commit``), which has a connection of its own (``line``).
"""
