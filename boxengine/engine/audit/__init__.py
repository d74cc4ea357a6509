"""The audit: whether a box kept its promises, told from its table and, where asked, from its Kafka topic.

``findings`` says what can be found. ``by_key`` looks at the rows of one key after the other (order, gaps, buckets),
``table`` at the rest of a table (items left behind, items that are there twice), ``topic`` compares the table with what
the topic holds. ``audit`` runs them one after the other. ``ports`` is what they need of the world: rows in pages,
messages in pages, and a place to sort both on disk, so that memory stays flat however large the table is.
"""
