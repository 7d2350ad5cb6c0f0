"""The families of errors: their codes, what they carry, and that their messages name the cause."""

from __future__ import annotations

import inspect

import pytest

from tailrace.model import (
    BrokerError,
    ConfigError,
    ErrorCode,
    LogBusy,
    LogDamaged,
    LogTruncated,
    NoSpace,
    Offset,
    OffsetOutOfRange,
    ProtocolError,
    StorageError,
    TailraceError,
    errors,
)

# Kafka's protocol guide, "Error codes".
KAFKA_CODES = {
    "OFFSET_OUT_OF_RANGE": 1,
    "CORRUPT_MESSAGE": 2,
    "UNKNOWN_TOPIC_OR_PARTITION": 3,
    "NOT_LEADER_OR_FOLLOWER": 6,
    "MESSAGE_TOO_LARGE": 10,
    "TOPIC_ALREADY_EXISTS": 36,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": 45,
    "INVALID_PRODUCER_EPOCH": 47,
    "INVALID_TXN_STATE": 48,
    "INVALID_PRODUCER_ID_MAPPING": 49,
    "INVALID_TRANSACTION_TIMEOUT": 50,
    "CONCURRENT_TRANSACTIONS": 51,
    "TRANSACTION_COORDINATOR_FENCED": 52,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": 53,
    "OPERATION_NOT_ATTEMPTED": 55,
    "KAFKA_STORAGE_ERROR": 56,
    "INVALID_RECORD": 87,
    "UNSTABLE_OFFSET_COMMIT": 88,
    "THROTTLING_QUOTA_EXCEEDED": 89,
    "PRODUCER_FENCED": 90,
    "TRANSACTIONAL_ID_NOT_FOUND": 105,
    "TRANSACTION_ABORTABLE": 120,
}


def test_codes_are_those_of_kafka() -> None:
    assert {code.name: code.value for code in ErrorCode}.items() >= KAFKA_CODES.items()


def test_every_error_has_one_family() -> None:
    families = (ProtocolError, BrokerError, StorageError, ConfigError)
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, TailraceError) and kind is not TailraceError:
            assert sum(issubclass(kind, family) for family in families) == 1, kind


@pytest.mark.parametrize(
    ("error", "code", "retriable"),
    [
        (LogDamaged("x"), ErrorCode.CORRUPT_MESSAGE, False),
        (LogTruncated("x"), ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (NoSpace("x"), ErrorCode.KAFKA_STORAGE_ERROR, True),
        (LogBusy("x"), ErrorCode.THROTTLING_QUOTA_EXCEEDED, True),
        (OffsetOutOfRange(Offset(1), start=Offset(2), end=Offset(3)), ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (BrokerError("x", code=ErrorCode.INVALID_RECORD), ErrorCode.INVALID_RECORD, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_answer_carries_its_code(error: BrokerError, code: ErrorCode, retriable: bool) -> None:
    assert (error.code, error.retriable) == (code, retriable)


def test_out_of_range_tells_what_is_there() -> None:
    error = OffsetOutOfRange(Offset(7), start=Offset(10), end=Offset(20))
    assert (error.start, error.end) == (10, 20)
    assert str(error) == "offset 7 is not in the log, which holds 10 to 20"


def test_a_storage_error_says_what_failed_where_and_the_way_out() -> None:
    error = StorageError("sync", "/data", "input/output error", hint="Replace the disk")
    assert str(error) == "sync /data: input/output error. Replace the disk"
    assert (error.op, error.path, error.reason, error.hint) == (
        "sync",
        "/data",
        "input/output error",
        "Replace the disk",
    )


def test_without_a_hint_nothing_dangles() -> None:
    assert str(StorageError("sync", "/data", "input/output error")) == "sync /data: input/output error"
