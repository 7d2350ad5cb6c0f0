"""The audit log before it is written: what is folded, what is bounded, and its log lines."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import CLUSTER, Operation, Resource, ResourceKind
from tailrace.model.session import Principal, Session
from tailrace.security.audit import (
    DENIED,
    FAILED,
    FOLDED_MS,
    LOGIN,
    OTHERS,
    Audit,
    Entry,
    Event,
    Folding,
    Line,
)

ALICE = Session(principal=Principal("User", "alice"), host="192.0.2.7", listener="kafka", mechanism="PLAIN")
FAILURE = Event(what=LOGIN, result=FAILED, host="192.0.2.7", listener="kafka", mechanism="PLAIN")


class Time:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def entries_of(audit: Audit) -> list[Entry]:
    return audit.take_nowait(1_000_000)


# ---- folding


def test_the_first_is_told_at_once_and_what_repeats_it_with_a_count() -> None:
    folding = Folding()
    assert folding.add(FAILURE, now_ms=0) == [Entry(0, FAILURE)]
    assert [folding.add(FAILURE, now_ms=each) for each in (1, 2, 59_999)] == [[], [], []]
    assert folding.due(now_ms=59_999) == []
    assert folding.due(now_ms=60_000) == [Entry(60_000, FAILURE, 3)]
    assert folding.due(now_ms=200_000) == []


def test_after_its_minute_an_event_is_told_at_once_again() -> None:
    folding = Folding()
    folding.add(FAILURE, now_ms=0)
    folding.add(FAILURE, now_ms=1)
    assert folding.add(FAILURE, now_ms=FOLDED_MS) == [
        Entry(FOLDED_MS, FAILURE, 1),
        Entry(FOLDED_MS, FAILURE),
    ]


def test_a_clock_that_is_set_back_ends_the_minute() -> None:
    folding = Folding()
    folding.add(FAILURE, now_ms=1_000_000)
    folding.add(FAILURE, now_ms=1_000_001)
    assert folding.due(now_ms=5) == [Entry(5, FAILURE, 1)]


def test_different_events_are_told_apart() -> None:
    folding = Folding()
    others = [
        replace(FAILURE, host="192.0.2.8"),
        replace(FAILURE, principal="User:bob"),
        replace(FAILURE, listener="native"),
        replace(FAILURE, mechanism="SCRAM-SHA-256"),
    ]
    for each in (FAILURE, *others):
        assert folding.add(each, now_ms=0) == [Entry(0, each)]


def test_how_many_are_told_apart_is_bounded() -> None:
    folding = Folding(events_max=10)
    for number in range(5_000):
        folding.add(replace(FAILURE, host=f"10.0.{number // 256}.{number % 256}"), now_ms=number)
    assert len(folding) == 11
    counted = {each.event.host: each.times for each in folding.due(now_ms=5_000, everything=True)}
    assert counted == {OTHERS: 5_000 - 10 - 1}


# ---- taking events


def test_successful_changes_are_told_one_by_one() -> None:
    audit = Audit(Time())
    for _ in range(3):
        with audit.changing(ALICE, "topic.create", "topic 'a'"):
            pass
    assert [(each.event.what, each.event.result, each.times) for each in entries_of(audit)] == [
        ("topic.create", "ok", 1)
    ] * 3


def test_changes_that_fail_are_folded_and_tell_the_code() -> None:
    time = Time()
    audit = Audit(time)
    for _ in range(3):
        with pytest.raises(BrokerError), audit.changing(ALICE, "topic.create", "topic 'a'"):
            raise BrokerError("exists", code=ErrorCode.TOPIC_ALREADY_EXISTS)
    (first,) = entries_of(audit)
    assert (first.event.result, first.event.principal) == ("TOPIC_ALREADY_EXISTS", "User:alice")
    time.now_ms += FOLDED_MS
    (folded,) = entries_of(audit)
    assert folded.times == 2


def test_a_bug_in_a_change_is_a_failure_and_nothing_of_it_is_told() -> None:
    audit = Audit(Time())
    with pytest.raises(ZeroDivisionError), audit.changing(ALICE, "topic.create", "topic 'a'"):
        raise ZeroDivisionError("a secret")
    (entry,) = entries_of(audit)
    assert entry.event.result == FAILED and "secret" not in str(entry)


def test_an_error_that_is_answered_and_not_raised_is_the_result() -> None:
    audit = Audit(Time())
    with audit.changing(ALICE, "group.delete", "group 'g'") as change:
        change.code = ErrorCode.NON_EMPTY_GROUP
    assert entries_of(audit)[0].event.result == "NON_EMPTY_GROUP"


def test_a_denial_names_who_what_and_on_what() -> None:
    audit = Audit(Time())
    audit.denied(ALICE, Operation.WRITE, Resource(ResourceKind.TOPIC, "orders"))
    (entry,) = entries_of(audit)
    assert entry.event == Event(
        what="access",
        result=DENIED,
        principal="User:alice",
        host="192.0.2.7",
        listener="kafka",
        mechanism="PLAIN",
        operation="WRITE",
        resource="topic 'orders'",
    )


def test_a_full_queue_drops_and_counts() -> None:
    audit = Audit(Time(), entries_max=2)
    for number in range(5):
        audit.record(Event(what="topic.create", result="ok", resource=str(number)))
    assert (audit.counts.recorded, audit.counts.dropped) == (5, 3)
    assert [each.event.resource for each in entries_of(audit)] == ["0", "1"]


def test_names_are_cut() -> None:
    audit = Audit(Time())
    audit.record(Event(what="x", result="ok", resource="r" * 100_000, principal="p" * 999))
    (entry,) = entries_of(audit)
    assert (len(entry.event.resource), len(entry.event.principal)) == (256, 256)


def test_one_that_is_off_takes_nothing() -> None:
    audit = Audit(Time(), is_on=False)
    audit.denied(ALICE, Operation.ALTER, CLUSTER)
    assert entries_of(audit) == [] and audit.counts.recorded == 0


def test_the_end_tells_what_is_being_folded_and_takes_nothing_more() -> None:
    audit = Audit(Time())
    audit.record(FAILURE)
    audit.record(FAILURE)
    audit.close()
    audit.record(FAILURE)
    assert [each.times for each in entries_of(audit)] == [1, 1]


# ---- log lines


def test_an_entry_is_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tailrace.audit"):
        Audit(Time()).denied(ALICE, Operation.WRITE, Resource(ResourceKind.TOPIC, "orders"))
    assert caplog.messages == [
        "access denied principal=User:alice address=192.0.2.7 listener=kafka mechanism=PLAIN "
        "operation=WRITE resource=\"topic 'orders'\""
    ]


@pytest.mark.parametrize("name", ["a\nlogin ok principal=User:root", "a\x1b[31m", "a b=c", 'a" b'])
def test_a_name_cannot_forge_a_line_or_a_field(name: str) -> None:
    line = str(Line(Entry(0, Event(what="x", result="ok", principal=f"User:{name}"))))
    assert line.isprintable()
    assert line.startswith("x ok principal=")
    assert " principal=User:root" not in line.replace(f'"User:{name}', "").partition('"')[0]
