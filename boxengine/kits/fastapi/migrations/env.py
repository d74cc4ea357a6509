import os

import boxengine
from alembic import context
from boxengine.integrations.alembic import box_options
from shop import Base
from sqlalchemy import create_engine

engine = create_engine(os.environ["DATABASE_URL"])
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        transaction_per_migration=True,
        **box_options(boxengine.load("outbox.yml").resolved),
    )
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
