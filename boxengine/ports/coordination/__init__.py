"""What workers share. Any of it may be lost at any time; that costs repeated work, but never an item or the order."""
