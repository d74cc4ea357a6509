"""The five situations: how each is caused, what the console then says, and what a line typed in the terminal does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from boxengine.demo.broken.receiver import POISON
from boxengine.demo.broken.scene import BOX, Scene

DEAD = 30_000
"""How many rows to make; each leaves two dead versions."""
ORDERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One way to be woken at night."""

    happens: Callable[[Scene], None]
    sentence: str
    """A part of the sentence that the console then shows."""
    outside: str | None
    """The explanation, for the person, of what a line typed in the terminal does; None: the console is enough."""
    typed: Callable[[Scene, str], None] = lambda _scene, _line: None


def _receiver_is_down(scene: Scene) -> None:
    scene.receiver.stop()
    scene.start_worker()
    scene.order(ORDERS)


def _an_item_is_poison(scene: Scene) -> None:
    scene.order(1, key="17", currency=POISON)
    scene.order(3, key="17")
    scene.order(20)
    scene.start_worker()


def _nobody_works(scene: Scene) -> None:
    scene.order(ORDERS)


def _nothing_is_vacuumed(scene: Scene) -> None:
    table = f"{BOX}s"
    scene.run_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    scene.run_sql(
        f"INSERT INTO {table} (uuid, event_key, bucket, payload, status, processed_at) "  # noqa: S608 - our own names
        f"SELECT gen_random_uuid(), n::text, mod(n, 16), '{{}}', 2, now() FROM generate_series(1, {DEAD}) AS n"
    )
    scene.forget_transaction()
    for _ in range(2):
        scene.run_sql(f"UPDATE {table} SET updated_at = now()")  # noqa: S608 - our own names
    scene.start_worker()


def _redis_is_lost(scene: Scene) -> None:
    scene.start_worker()
    scene.order(ORDERS)
    scene.kill_redis()


SITUATIONS: Mapping[str, Situation] = {
    "receiver": Situation(
        happens=_receiver_is_down,
        sentence="has not reached its receiver",
        outside="Enter here brings the receiver back.",
        typed=lambda scene, _: scene.receiver.start(),
    ),
    "poison": Situation(happens=_an_item_is_poison, sentence="3 items of key 17 wait for item", outside=None),
    "no-worker": Situation(
        happens=_nobody_works,
        sentence=f"{ORDERS} items wait",
        outside="Enter here starts a worker.",
        typed=lambda scene, _: scene.start_worker(),
    ),
    "vacuum": Situation(
        happens=_nothing_is_vacuumed,
        sentence="dead rows and",
        outside="What is typed here is run by the database as its owner.",
        typed=lambda scene, line: scene.run_sql(line),
    ),
    "redis": Situation(
        happens=_redis_is_lost,
        sentence="Redis does not answer",
        outside="Enter here brings Redis back, empty.",
        typed=lambda scene, _: scene.start_redis(),
    ),
}
