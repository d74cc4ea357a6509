"""Apache Kafka through librdkafka (extra ``boxengine[kafka]``).

``transport`` turns items into messages (``messages``) and hands them to a sender: ``producers`` (one idempotent producer
shared by all threads) or ``transactions`` (one transaction per batch). ``receipts`` counts the delivery reports of a
batch, ``reasons`` puts errors into words, ``config`` holds our defaults, ``client`` is the only place that imports
``confluent_kafka``.
"""
