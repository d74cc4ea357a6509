"""Apache Kafka through librdkafka (extra ``boxengine[kafka]``).

- **Out:** ``transport`` turns items into messages (``messages``) and hands them to a sender: ``producers`` (one idempotent
  producer shared by all threads) or ``transactions`` (one transaction per batch). ``pool`` lets transports share a sender.
  ``live`` keeps one producer going, ``receipts`` counts the delivery reports of a batch, ``reasons`` says what an error means for
  its item, ``sizes`` tells which messages go out alone because they may be too large. ``config`` holds our defaults.
- **In:** the way back, into an inbox, is ``consumer``, configured by ``consumer_config``. ``received`` makes a value of a
  message. ``beginning`` says where a group begins that reads from the end. ``statistics`` tells where partitions end, and where
  the group stands. ``absent_topics`` notices topics that are not there, and ``topic_ids`` those that were deleted and created
  again. ``dead_letters`` sends to a topic what an inbox cannot take.
- **Looks:** ``reach`` (whether a cluster answers), ``checkup`` (what ``boxengine doctor`` finds), ``topic_reader`` (reads whole
  topics for the audit).
- **The library:** ``client`` imports what producers need of ``confluent_kafka``, ``consumer_client`` what consumers need.
  ``farewell`` lets go of librdkafka's clients where nobody waits for it.
"""
