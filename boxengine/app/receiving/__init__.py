"""Messages that become items of inboxes: ``sources`` (which topics), ``consuming`` (the consumers)."""
