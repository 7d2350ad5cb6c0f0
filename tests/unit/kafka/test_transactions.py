"""The error table of transactions: what each API answers in each version, for every refusal."""

from __future__ import annotations

import pytest

from tailrace.broker.transactions import Situation, TransactionRefused
from tailrace.kafka.transactions import CODES, client_version, refusal_of
from tailrace.model import BrokerError, ErrorCode, LogBusy, StorageError

S = Situation
PRODUCE, INIT, OFFSETS = 0, 22, 28
COORDINATOR = (24, 25, 26)
VERSIONS = {0: range(3, 13), 22: range(6), 24: range(4), 25: range(5), 26: range(6), 28: range(6)}


def cell(api: int, situation: Situation) -> list[int]:
    """The codes of an API, version by version."""
    refused = TransactionRefused("no", situation=situation)
    return [refusal_of(refused, api, version)[0] for version in VERSIONS[api]]


@pytest.mark.parametrize(
    ("situation", "codes"),
    [
        (S.LOADING, [19] * 10),
        (S.NOT_COORDINATOR, [19] * 10),
        (S.LOG_REFUSES, [19] * 10),
        (S.NOT_COMPLETE, [19] * 9 + [51]),
        (S.OTHER_ID, [49] * 10),
        (S.FENCED, [47] * 10),
        (S.TIMED_OUT, [47] * 8 + [120] * 2),
        (S.NOT_IN_TRANSACTION, [48] * 8 + [120] * 2),
    ],
)
def test_produce(situation: Situation, codes: list[int]) -> None:
    assert cell(PRODUCE, situation) == codes


@pytest.mark.parametrize("api", COORDINATOR)
@pytest.mark.parametrize(
    ("situation", "codes"),
    [
        (S.LOADING, [14] * 6),
        (S.NOT_COORDINATOR, [16] * 6),
        (S.LOG_REFUSES, [15] * 6),
        (S.NOT_COMPLETE, [51] * 6),
        (S.OTHER_ID, [49] * 6),
        (S.FENCED, [47] * 2 + [90] * 4),
        (S.TIMED_OUT, [49] * 4 + [120] * 2),
        (S.NOTHING_TO_COMMIT, [48] * 4 + [120] * 2),
        (S.WRONG_STATE, [48] * 6),
    ],
)
def test_what_goes_to_the_coordinator(api: int, situation: Situation, codes: list[int]) -> None:
    assert cell(api, situation) == codes[: len(VERSIONS[api])]


@pytest.mark.parametrize(
    ("situation", "codes"),
    [
        (S.LOADING, [14] * 6),
        (S.NOT_COORDINATOR, [16] * 6),
        (S.LOG_REFUSES, [15] * 6),
        (S.NOT_COMPLETE, [14] * 5 + [51]),
        (S.OTHER_ID, [49] * 6),
        (S.FENCED, [47] * 6),
        (S.TIMED_OUT, [49] * 4 + [120] * 2),
        (S.NOT_IN_TRANSACTION, [48] * 4 + [120] * 2),
    ],
)
def test_txn_offset_commit(situation: Situation, codes: list[int]) -> None:
    assert cell(OFFSETS, situation) == codes


@pytest.mark.parametrize(
    ("situation", "codes"),
    [
        (S.LOADING, [14] * 6),
        (S.NOT_COORDINATOR, [16] * 6),
        (S.LOG_REFUSES, [15] * 6),
        (S.NOT_COMPLETE, [51] * 6),
        (S.FENCED, [47] * 4 + [90] * 2),
    ],
)
def test_init_producer_id(situation: Situation, codes: list[int]) -> None:
    assert cell(INIT, situation) == codes


def test_every_api_of_the_table_is_here() -> None:
    assert set(CODES) == set(VERSIONS)


def test_other_errors_keep_their_codes() -> None:
    refused = BrokerError("no", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert refusal_of(refused, PRODUCE, 9) == (29, "no")
    assert (
        refusal_of(LogBusy("full"), PRODUCE, 9)[0] == refusal_of(StorageError("sync", "/d", "no"), 26, 3)[0]
    )
    with pytest.raises(KeyError):
        refusal_of(KeyError("a bug"), PRODUCE, 9)


def test_the_client_version_is_that_of_the_request() -> None:
    assert [client_version(version, bumping_from=5) for version in (0, 4, 5)] == [0, 0, 2]
