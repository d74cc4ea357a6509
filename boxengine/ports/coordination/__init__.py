"""What workers share. Any of it may be lost at any time, which costs work, but never an item and never the order."""
