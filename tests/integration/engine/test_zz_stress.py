import pytest
from boxengine.domain.outcome import Failure
from tests.integration.engine.conftest import *
from tests.integration.engine.receivers import *
from tests.integration.engine.test_reference_tables import FULL,row,RETRIES
from tests.conftest import *
@pytest.mark.parametrize("n", range(60))
def test_x(make_rig, n):
    rig = make_rig(tables=False, box=RETRIES)
    r=Receiver(FailsFirst(1, guilty=lambda item: item.id == 1))
    rig.carry(r)
    rig.execute(FULL)
    for _ in range(2):
        rig.execute(row("full", key=1, bucket=1).replace(":", "\\:"))
    w = rig.deliver(3)
    if (w.delivered, w.discarded) != ([2], [1]):
        print(w.__dict__); print(rig.rows()); print(r.ids)
    assert (w.delivered, w.discarded) == ([2], [1])
