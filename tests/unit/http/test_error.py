"""The border between our exceptions and HTTP: every code has a status, every exception an answer."""

from __future__ import annotations

import pytest

from tailrace.http.error import STATUS, Code, HttpError, answer_to, invalid
from tailrace.model import BrokerError, ConfigError, ErrorCode, Offset, OffsetOutOfRange, StorageError


def answered(error: Exception) -> HttpError:
    found = answer_to(error)
    assert found is not None
    return found


def test_every_code_has_a_status_and_is_its_own_name() -> None:
    assert STATUS.keys() == set(Code)
    assert all(400 <= status < 600 for status in STATUS.values())
    assert all(str(code) == code.name for code in Code)


def test_the_codes_are_those_that_are_documented() -> None:
    documented = """TOPIC_NOT_FOUND TOPIC_ALREADY_EXISTS INVALID_PARTITIONS INVALID_REPLICATION_FACTOR
        INSUFFICIENT_REPLICAS GROUP_NOT_FOUND OFFSET_OUT_OF_RANGE INVALID_CONFIG AUTHORIZATION_FAILED
        AUTHENTICATION_FAILED CLUSTER_UNHEALTHY BROKER_NOT_AVAILABLE INVALID_REQUEST SUBSCRIPTION_NOT_FOUND
        TRANSACTION_NOT_FOUND USER_NOT_FOUND ACL_NOT_FOUND TOKEN_NOT_FOUND QUOTA_EXCEEDED MESSAGE_TOO_LARGE
        UNREADABLE_RECORDS INTERNAL"""
    assert [str(code) for code in Code] == documented.split()


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_every_kafka_code_has_an_answer_with_its_message(code: ErrorCode) -> None:
    error = answered(BrokerError("what happened, and the way out", code=code))
    assert error.body() == {
        "error": {"code": str(error.code), "message": "what happened, and the way out", "details": {}}
    }
    assert ("retry-after" in error.headers) == (error.status == 503)


@pytest.mark.parametrize(
    ("kafka", "code", "status"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Code.TOPIC_NOT_FOUND, 404),
        (ErrorCode.TOPIC_ALREADY_EXISTS, Code.TOPIC_ALREADY_EXISTS, 409),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, Code.INVALID_REQUEST, 400),
        (ErrorCode.INVALID_PARTITIONS, Code.INVALID_PARTITIONS, 400),
        (ErrorCode.INVALID_REPLICATION_FACTOR, Code.INVALID_REPLICATION_FACTOR, 400),
        (ErrorCode.INVALID_CONFIG, Code.INVALID_CONFIG, 400),
        (ErrorCode.NOT_ENOUGH_REPLICAS, Code.INSUFFICIENT_REPLICAS, 503),
        (ErrorCode.GROUP_ID_NOT_FOUND, Code.GROUP_NOT_FOUND, 404),
        (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, Code.TRANSACTION_NOT_FOUND, 404),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Code.AUTHORIZATION_FAILED, 403),
        (ErrorCode.CONCURRENT_TRANSACTIONS, Code.BROKER_NOT_AVAILABLE, 503),
        (ErrorCode.INVALID_TXN_STATE, Code.INVALID_REQUEST, 409),
        (ErrorCode.NON_EMPTY_GROUP, Code.INVALID_REQUEST, 409),
        (ErrorCode.OFFSET_OUT_OF_RANGE, Code.OFFSET_OUT_OF_RANGE, 416),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Code.AUTHORIZATION_FAILED, 403),
        (ErrorCode.SASL_AUTHENTICATION_FAILED, Code.AUTHENTICATION_FAILED, 401),
        (ErrorCode.MESSAGE_TOO_LARGE, Code.MESSAGE_TOO_LARGE, 413),
        (ErrorCode.KAFKA_STORAGE_ERROR, Code.BROKER_NOT_AVAILABLE, 503),
        (ErrorCode.CORRUPT_MESSAGE, Code.INTERNAL, 500),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Code.INTERNAL, 500),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else "",
)
def test_a_kafka_code_means_what_it_says(kafka: ErrorCode, code: Code, status: int) -> None:
    error = answered(BrokerError("x", code=kafka))
    assert (error.code, error.status) == (code, status)


def test_an_offset_out_of_range_says_what_there_is() -> None:
    error = answered(OffsetOutOfRange(Offset(7), start=Offset(10), end=Offset(20)))
    assert (error.code, error.status) == (Code.OFFSET_OUT_OF_RANGE, 416)
    assert error.details == {"start_offset": 10, "end_offset": 20}


def test_trouble_with_the_disk_is_ours_and_may_pass() -> None:
    error = answered(StorageError("fsync", "/data", "No space left on device"))
    assert (error.code, error.status) == (Code.BROKER_NOT_AVAILABLE, 503)
    assert error.headers == {"retry-after": "1"}


def test_an_error_of_the_listener_is_told_as_it_is() -> None:
    error = invalid("no", line=3)
    assert answered(error) is error
    assert error.body() == {"error": {"code": "INVALID_REQUEST", "message": "no", "details": {"line": 3}}}
    assert HttpError(Code.INVALID_REQUEST, "x", status=418).status == 418


@pytest.mark.parametrize("error", [ValueError("x"), ConfigError("x"), KeyError("x"), TimeoutError()])
def test_everything_else_is_a_bug(error: Exception) -> None:
    assert answer_to(error) is None
