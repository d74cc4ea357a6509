"""Made by makemigrations."""
