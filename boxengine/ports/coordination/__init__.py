"""What workers share. All of it may be lost at any time: that costs work, never an item, never the order."""
