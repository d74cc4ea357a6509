"""The routes of long jobs in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boxengine.domain.jobs import AfterFailure, JobState
from boxengine.engine.jobs.create import MOST_PREDECESSORS
from boxengine.web.console.job_acting import DONE
from boxengine.web.console.job_parsing import LONGEST_DELAY, LONGEST_LEASE
from boxengine.web.console.openapi_parts import OBJECT, PERIOD, TEXT, does
from boxengine.web.console.parsing import LARGEST_ID, MOST_IDS

_PRIORITY = 2**31 - 1
_NEW_JOB: Mapping[str, Any] = {
    "type": "object",
    "required": ["queue", "task"],
    "additionalProperties": False,
    "properties": {
        "queue": {**TEXT, "description": "the job box: report_job"},
        "task": {**TEXT, "description": "one of the box's tasks"},
        "args": {"description": "any JSON; {} where it is left out"},
        "idempotency_key": {**TEXT, "description": "of jobs with the same one only the first is created"},
        "lock_key": {**TEXT, "description": "of jobs with the same one, one runs at a time"},
        "partition_key": {**TEXT, "description": "kept, and not looked at"},
        "consumer_group": {**TEXT, "description": "kept, and not looked at"},
        "priority": {"type": "integer", "minimum": -_PRIORITY, "maximum": _PRIORITY, "default": 100},
        "available_at": {**TEXT, "description": "not before; ISO 8601, UTC without a zone"},
        "delay": {
            "type": "number",
            "minimum": 0,
            "maximum": LONGEST_DELAY.total_seconds(),
            "description": "seconds; instead of available_at",
        },
        "after": {
            "type": "array",
            "maxItems": MOST_PREDECESSORS,
            "items": {"type": ["string", "integer"]},
            "description": "ids of jobs of the same box that must have succeeded first: report-job:42",
        },
        "after_failure": {
            "type": "string",
            "enum": [str(each) for each in AfterFailure],
            "default": str(AfterFailure.CANCEL),
            "description": "what happens when one of them does not succeed",
        },
        "max_attempts": {"type": "integer", "minimum": 1, "maximum": _PRIORITY},
        "lease_ttl": {"type": "integer", "minimum": 3, "maximum": int(LONGEST_LEASE.total_seconds())},
    },
}
_STATUS = {"type": "string", "enum": [str(state) for state in JobState]}
_TRIGGERED = {
    "type": "object",
    "required": ["job_id", "status"],
    "properties": {"job_id": {"type": "string"}, "status": _STATUS},
}
_MOMENT = {"type": ["string", "null"], "format": "date-time"}
_STATE = {
    "type": "object",
    "required": ["job_id", "status", "attempt", "progress"],
    "properties": {
        "job_id": {"type": "string"},
        "queue": {"type": "string"},
        "task": {"type": "string"},
        "status": _STATUS,
        "attempt": {"type": "integer", "description": "0 before the first"},
        "max_attempts": {"type": "integer"},
        "created_at": _MOMENT,
        "available_at": _MOMENT,
        "started_at": {**_MOMENT, "description": "of the first attempt"},
        "finished_at": _MOMENT,
        "heartbeat_at": _MOMENT,
        "cancel_requested": {"type": "boolean"},
        "waits_for": {
            "type": "array",
            "items": {"type": "string"},
            "description": "ids of the jobs that have not ended, of those that it was created after; at most 100",
        },
        "progress": {"type": "object", "description": "as the handler tells it"},
        "result": {"description": "what the handler returned"},
        "error": {"type": ["string", "null"], "description": "of the last failed attempt"},
    },
}
_ID = {"job_id": {"type": "string", "description": "the box's name with dashes, a colon, the number: report-job:42"}}


_BOX = {"box": {"type": "string", "description": "the name with dashes: report-job"}}
_JOB = {**_BOX, "job": {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}}
_SEARCH: Mapping[str, Any] = {
    "status": {"type": "array", "items": _STATUS, "minItems": 1},
    "id": {"type": "array", "items": _JOB["job"], "minItems": 1, "maxItems": MOST_IDS},
    "task": TEXT,
    "lock_key": TEXT,
    "idempotency_key": TEXT,
    "error": {**TEXT, "description": "text in the error"},
    **PERIOD,
}
_FILTER = {"type": "object", "additionalProperties": False, "properties": _SEARCH}
_COUNT = {"type": "object", "additionalProperties": False, "properties": {"filter": _FILTER}}
_ACTIONS = {"type": "string", "enum": list(DONE)}
_ACT = {
    "type": "object",
    "required": ["action"],
    "additionalProperties": False,
    "properties": {
        "action": _ACTIONS,
        "filter": _FILTER,
        "dry_run": {"type": "boolean", "default": False, "description": "only count"},
    },
}


def job_paths(page: Mapping[str, Any]) -> dict[str, Any]:
    """The operations of long jobs, by path.

    Args:
        page: the paging parameters that every list takes.
    """
    return {
        "/api/boxes/{box}/jobs": {"get": does("A page of long jobs", OBJECT, path=_BOX, query={**_SEARCH, **page})},
        "/api/boxes/{box}/jobs/count": {
            "get": does("How many long jobs, up to 10,000", OBJECT, path=_BOX, query=_SEARCH),
            "post": does("Count long jobs exactly, in the background", OBJECT, path=_BOX, body=_COUNT, begins=True),
        },
        "/api/boxes/{box}/jobs/actions": {
            "post": does("Act on all long jobs of a filter, or count them", OBJECT, path=_BOX, body=_ACT, begins=True)
        },
        "/api/boxes/{box}/jobs/{job}": {
            "get": does("One long job, whole, with its journal and why it waits", OBJECT, path=_JOB)
        },
        "/api/boxes/{box}/jobs/{job}/{action}": {
            "post": does("Cancel a long job, or queue it again", OBJECT, path={**_JOB, "action": _ACTIONS})
        },
        "/api/v1/jobs/trigger": {"post": does("Create a long job", _TRIGGERED, body=_NEW_JOB)},
        "/api/v1/jobs/{job_id}/status": {"get": does("How far a long job is", _STATE, path=_ID)},
        "/api/v1/jobs/{job_id}/cancel": {
            "post": does("Cancel a long job, or ask its handler to stop", _STATE, path=_ID)
        },
        "/status": {"get": does("The job boxes, with what waits and what runs", OBJECT)},
        "/health": {"get": does("Whether this process answers; no database is asked", OBJECT) | {"security": []}},
    }
