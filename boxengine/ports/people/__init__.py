"""Questions and actions of people, on the command line and in the console. Never in the path of a delivery."""
