"""Contracts: what a job may be created with, and what can be read after the contract has grown."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import pytest

from boxengine import Contract, Int, Int64, Job
from boxengine.adapters.contracts import MsgpackArgs, readable
from boxengine.domain.jobs import JobState
from boxengine.engine.jobs.create import JobChecks
from boxengine.errors import BoxError, InvalidItem
from boxengine.settings.contracts import module, read
from tests.unit.jobs.crew import BOX, Crew


@dataclass(frozen=True, kw_only=True)
class Mail(Contract):
    contract_id: ClassVar[int] = 7
    user: Int64
    subject: str
    body: bytes = b""
    days: tuple[Int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Grown(Contract):
    """The same contract, later."""

    contract_id: ClassVar[int] = 7
    user: Int64
    subject: str
    days: tuple[Int, ...] = ()
    urgent: bool
    language: str = "en"


@dataclass(frozen=True, kw_only=True)
class Other(Contract):
    contract_id: ClassVar[int] = 8


def test_what_is_written_is_read_again() -> None:
    mail, codec = Mail(user=2**63 - 1, subject="Grüße\0", body=b"\xff\0", days=(-(2**31), 2**31 - 1)), MsgpackArgs(Mail)
    assert codec.decode(codec.encode(mail)) == mail


def test_people_read_the_fields_of_a_payload_and_whatever_else_is_stored_as_it_is() -> None:
    stored = MsgpackArgs(Mail).encode(Mail(user=1, subject="s", body=b"\xff", days=(2,)))
    assert readable(stored) == {"contract": 7, "user": 1, "subject": "s", "body": "/w==", "days": [2]}
    for other in (None, 3, [1], {"a": 1}, {"contract": 7, "msgpack": "?"}, {"contract": 7, "msgpack": "kQ=="}):
        assert readable(other) == other


def test_an_older_payload_is_readable_after_fields_were_added_and_a_newer_one_before() -> None:
    old, new = Mail(user=1, subject="s", days=(1,)), Grown(user=1, subject="s", days=(1,), urgent=True, language="de")
    assert MsgpackArgs(Grown).decode(MsgpackArgs(Mail).encode(old)) == Grown(
        user=1, subject="s", days=(1,), urgent=False, language="en"
    )
    assert MsgpackArgs(Mail).decode(MsgpackArgs(Grown).encode(new)) == old


def test_arguments_from_before_the_contract_are_read_if_they_fit() -> None:
    assert MsgpackArgs(Mail).decode({"user": 1, "subject": "s"}) == Mail(user=1, subject="s")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"user": "1"}, "Mail.user: expected int64, got '1'"),
        ({"user": True}, "Mail.user: expected int64, got True"),
        ({"user": 2**63}, "Mail.user: expected int64, which has 64 bits"),
        ({"days": (2**31,)}, "Mail.days: expected int, which has 32 bits"),
        ({"days": "12"}, "Mail.days: expected a list of int, got '12'"),
        ({"days": [1, None]}, "Mail.days: expected int, got None"),
        ({"subject": b"s"}, "Mail.subject: expected string"),
        ({"body": "text"}, "Mail.body: expected bytes"),
    ],
)
def test_a_value_of_another_type_is_refused_when_the_object_is_made(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidItem) as error:
        Mail(**{"user": 1, "subject": "s", **values})
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (Other(), "expected Mail, or a mapping with its fields"),
        (None, "Mail.user is missing"),
        ({"user": 1, "subject": "s", "cc": ""}, "Mail has no field cc; known: user, subject, body, days"),
        ({"user": 1, "subject": "s", "body": "no base64"}, "expected bytes as text in base64"),
        ({"user": 1.0, "subject": "s"}, "Mail.user: expected int64"),
    ],
)
def test_a_mismatch_is_refused_when_the_job_is_created(args: Any, expected: str) -> None:
    checks = JobChecks(BOX, tasks=["send"], codecs={"send": MsgpackArgs(Mail)})
    with pytest.raises(InvalidItem) as error:
        checks.checked({"task": "send", "args": args})
    assert str(error.value).startswith("box report_job: args of send: ")
    assert expected in str(error.value)


def test_json_is_as_good_as_an_object_with_bytes_as_base64() -> None:
    codec = MsgpackArgs(Mail)
    given = {"user": 1, "subject": "s", "body": "/wA=", "days": [1]}
    assert codec.encode(given) == codec.encode(Mail(user=1, subject="s", body=b"\xff\0", days=(1,)))


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (MsgpackArgs(Other).encode(Other()), "expected contract 7 (Mail), got contract 8"),
        ({"contract": 7, "msgpack": "!"}, "expected msgpack of contract 7 (Mail)"),
        ({"contract": 7, "msgpack": "wQ=="}, "expected msgpack of contract 7 (Mail)"),
        ({"contract": 7, "msgpack": "kA=="}, "expected the fields of contract 7 (Mail), got list"),
    ],
)
def test_what_cannot_be_read_fails_the_attempt_with_the_reason(stored: Any, expected: str) -> None:
    crew = Crew(lambda job: job.args, codecs={"report": MsgpackArgs(Mail)})
    crew.create(args=stored)
    crew.work()
    assert crew.row().status is JobState.QUEUED
    assert expected in str(crew.row().error)


def test_a_handler_gets_the_object() -> None:
    def handler(job: Job[Mail]) -> str:
        return f"{job.args.subject} to {job.args.user}"

    crew = Crew(handler, codecs={"report": MsgpackArgs(Mail)})
    crew.create(args=MsgpackArgs(Mail).encode(Mail(user=3, subject="s")))
    crew.work()
    assert crew.row().result == "s to 3"


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────

FILE = """
contracts:
  - id: 7
    name: Mail
    fields:
      user: int64
      small: int
      subject: {type: string, default: "it's"}
      urgent: {type: bool, default: true}
      body: bytes
      days: {type: [int], default: [1, 2]}
  - {id: 8, name: Empty, fields: {}}
"""


def test_the_module_that_is_made_has_the_classes_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = ModuleType("made_contracts")
    monkeypatch.setitem(sys.modules, made.__name__, made)  # where the types of its fields are looked for
    exec(module(read(FILE, "contracts.yml"), "contracts.yml"), made.__dict__)
    mail = made.Mail(user=1, small=2, body=b"b")
    assert (mail.subject, mail.urgent, mail.days, mail.contract_id) == ("it's", True, (1, 2), 7)
    assert MsgpackArgs(made.Mail).decode(MsgpackArgs(made.Mail).encode(mail)) == mail
    assert made.Empty().to_wire() == {}


def test_all_that_is_wrong_in_a_file_is_told_at_once() -> None:
    text = """
    contracts:
      - {id: 7, name: mail, fields: {Good: int, list: [int, int], class: int, to_wire: int, far: float}}
      - {id: 7, name: Other, fields: {small: {type: int, default: 3000000000}}}
      - {name: NoId, fields: {}}
    """
    with pytest.raises(BoxError) as error:
        read(text, "c.yml")
    told = [line.removeprefix("c.yml: ") for line in str(error.value).splitlines()]
    assert [line.partition(";")[0] for line in told] == [
        "contract 1: expected the name of a class, such as SendMail, got 'mail'",
        "mail.Good: expected the name of a field, in lower case with underscores",
        "mail.list: expected int, int64, string, bool, bytes, or a list such as [int64]",
        "mail.class: expected the name of a field, in lower case with underscores",
        "mail.to_wire: expected the name of a field, in lower case with underscores",
        "mail.far: expected int, int64, string, bool, bytes, or a list such as [int64]",
        "Other.small: default: expected int, which has 32 bits, got 3000000000",
        "contract 3: expected the keys id (a number), name and fields (a mapping)",
        "the id 7 is used twice",
    ]


@pytest.mark.parametrize("text", ["", "contracts: {}", "contracts: []", "contracts: [1]\nmore: 2", "a: [b"])
def test_a_file_without_contracts_is_refused(text: str) -> None:
    with pytest.raises(BoxError, match=r"c\.yml"):
        read(text, "c.yml")
