"""Five broken situations to practise on: each is set up for real, and found and mended with the console."""
