"""How boxengine behaves beside sbmt-outbox: one test per row of each table that describes it, over every database."""
