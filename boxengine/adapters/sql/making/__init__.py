"""Tables are made, checked and upgraded.

``schema`` makes, checks and prints the tables and indexes of all boxes. ``upgrade`` compares a database with them and adds what
is missing, through the plans of ``planning``. ``sizes`` records the number of buckets in force.
"""
