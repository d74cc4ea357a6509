"""Five broken situations to practise on: each is set up for real, and found and fixed with the console."""
