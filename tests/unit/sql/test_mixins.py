"""What a user's model may be."""

from __future__ import annotations

from types import new_class

import pytest
from pydantic import BaseModel

from boxengine import InboxItem, JobItem, OutboxItem


@pytest.mark.parametrize("mixin", [OutboxItem, InboxItem, JobItem])
@pytest.mark.parametrize("mixin_first", [True, False])
def test_a_pydantic_model_is_told_which_base_to_take(mixin: type, *, mixin_first: bool) -> None:
    bases = (mixin, BaseModel) if mixin_first else (BaseModel, mixin)
    with pytest.raises(TypeError, match=r"^OrderItem: a box's model cannot .* metadata = SQLModel\.metadata$"):
        new_class("OrderItem", bases)
