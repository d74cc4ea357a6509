"""The shape of a box's table.

``models`` has the mixins for users' models, of ``columns`` whose types differ by database and of indexes called as in
``index_names``. ``tables`` reads how a table really looks; with ``catalog`` it asks about many at once. ``changes`` notices when
that has changed. ``adapting`` makes SQLAlchemy's table look the same. ``texts`` knows what a text column can store, ``now`` the
database's clock, and ``replayed`` how to recognise rows of a replay.
"""
