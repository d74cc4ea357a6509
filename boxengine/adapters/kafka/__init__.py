"""Apache Kafka through librdkafka (extra ``boxengine[kafka]``).

``transport`` turns items into messages (``messages``) and hands them to a sender: ``producers`` (one idempotent producer
shared by all threads) or ``transactions`` (one transaction per batch). ``live`` keeps one producer going, ``receipts``
counts the delivery reports of a batch, ``reasons`` says what an error means for its item, ``config`` holds our defaults,
``client`` is the only place that imports ``confluent_kafka``. The way back, into an inbox, is ``consumer``.
"""
