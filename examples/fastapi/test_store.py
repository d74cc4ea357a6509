from fastapi.testclient import TestClient
from store import OrderOutboxItem, app

from boxengine.testing import MemoryBoxes


def test_an_order_is_announced(boxes: MemoryBoxes) -> None:
    with TestClient(app) as client:
        answer = client.post("/orders", json={"title": "a bicycle"})
    assert boxes.emitted(OrderOutboxItem) == [
        {"event_key": answer.json()["id"], "event_name": "order_placed", "payload": {"title": "a bicycle"}},
    ]
