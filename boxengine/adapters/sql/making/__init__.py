"""Tables are made, checked and upgraded.

``schema`` makes and prints the tables and indexes of all boxes; ``checks`` finds what is wrong with those that are there,
and ``row_security`` those whose rows PostgreSQL may hide from a worker.
``upgrade`` adds what a database lacks, through the plans of ``planning``. ``sizes`` records the number of buckets in force.
"""
