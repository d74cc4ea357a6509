"""The audit: whether a box kept its promises, judged by its table and, on request, by its Kafka topic.

``findings`` defines what can be found. ``by_key`` checks the rows key by key (order, gaps, buckets), ``table`` checks the rest
of a table (items left behind, duplicate items), and ``topic`` compares the table with the topic. ``audit`` runs them one
after the other. ``ports/people/audit`` is what they need from outside: rows in pages, messages in pages, and a place to sort
both on disk, so that memory use stays flat however large the table is.
"""
