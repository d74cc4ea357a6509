import asyncio

import store
from alembic import context
from sqlalchemy import Connection

from boxengine.integrations.alembic import box_options


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=store.Base.metadata,
        transaction_per_migration=True,
        **box_options(store.boxes.resolved),
    )
    with context.begin_transaction():
        context.run_migrations()


async def connect_and_migrate() -> None:
    async with store.engine.connect() as connection:
        await connection.run_sync(migrate)
    await store.engine.dispose()


asyncio.run(connect_and_migrate())
