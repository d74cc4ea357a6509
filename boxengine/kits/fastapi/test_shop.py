"""`pytest` runs these on a PostgreSQL and a Valkey of their own."""

from datetime import timedelta

import pytest
from alembic import command
from alembic.config import Config
from boxengine.testing import RecordingTransport
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session

import shop


@pytest.fixture
def session(boxengine_servers, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", boxengine_servers.database_url)
    monkeypatch.setenv("REDIS_URL", boxengine_servers.redis_url)
    command.upgrade(Config("alembic.ini"), "head")
    engine = create_engine(boxengine_servers.database_url)
    with Session(engine) as session:
        yield session
    engine.dispose()


@pytest.fixture
def boxes(session, database_boxes):
    return database_boxes(session)


@pytest.fixture
def client(session):
    with TestClient(shop.build(worker=False), raise_server_exceptions=False) as client:
        yield client


def test_the_migrations_make_what_the_models_say(session):
    command.check(Config("alembic.ini"))


def test_an_order_is_announced(client, session, boxes, capsys):
    placed = client.post("/orders", json={"title": "a bicycle"})
    assert placed.status_code == 201
    assert session.scalars(select(shop.Order.title)).all() == ["a bicycle"]
    number = placed.json()["id"]
    assert boxes.emitted(shop.OrderOutboxItem) == [
        {"event_name": "order_placed", "event_key": number, "payload": {"id": number, "title": "a bicycle"}}
    ]
    assert [item.event_key for item in boxes.drain().delivered] == [str(number)]
    assert "order_placed" in capsys.readouterr().out


def test_an_order_that_fails_announces_nothing(client, session, boxes):
    assert client.post("/orders", json={"title": "x" * 101}).status_code == 500
    assert session.scalars(select(shop.Order)).all() == []
    assert boxes.emitted(shop.OrderOutboxItem) == []


def test_an_event_is_tried_again_until_its_receiver_takes_it(client, boxes):
    receiver = RecordingTransport(answers=[ConnectionError("down"), None])
    boxes.use_transport(shop.OrderOutboxItem, receiver)
    client.post("/orders", json={"title": "a bicycle"})
    assert len(boxes.drain(until=timedelta(hours=1)).delivered) == 1
    assert len(receiver.items) == 2
