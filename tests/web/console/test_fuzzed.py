"""A short run of what schemathesis makes of the OpenAPI document, with a fixed seed; ``make console-fuzz`` is the long one."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error

from boxengine.web.console.openapi import described
from tests.web.console.conftest import OPERATE, Console

EXAMPLES = 3
"""Of each operation."""


def test_no_request_that_the_document_allows_or_forbids_is_a_server_error(job_console: Console) -> None:
    for item_id in job_console.create(count=5)[:2]:
        job_console.fail(item_id)
    document = schemathesis.openapi.from_asgi(
        "/api/openapi.json", job_console.app, headers={"Authorization": f"Bearer {OPERATE}"}
    )
    tried = 0
    every: Any = document.get_all_operations()
    for found in every:
        operation = found.ok()

        @seed(16)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def send(case: Any) -> None:
            case.call_and_validate(headers={"Authorization": f"Bearer {OPERATE}"}, checks=[not_a_server_error])

        send()
        tried += 1
    assert tried == sum(map(len, described()["paths"].values())) - 1, "the document itself is not among them"
