"""Settings and bounds of transactions. Kafka's name of a setting stands beside it where there is one."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.broker.transactions.state import NO_TIMEOUT_MS
from tailrace.model import BrokerError, ErrorCode

_DAY_MS = 24 * 3600 * 1000

RESERVED_PREFIX = "__tailrace-"
"""Transactional ids that begin so belong to the node (`pool`)."""

ID_BYTES_MAX = 32_000
"""Names end up in records whose strings have 16-bit lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Settings of a node's transaction coordinator."""

    timeout_ms_max: int = 900_000  # transaction.max.timeout.ms
    expiration_ms: int = 7 * _DAY_MS  # transactional.id.expiration.ms
    expiration_check_ms: int = 3_600_000  # transaction.remove.expired.transaction.cleanup.interval.ms
    retry_ms: int = 500  # after which markers are tried again that a log refused; doubles each time
    retry_ms_max: int = 5_000
    commit_timeout_ms: int = 5_000  # how long an answer waits for durability
    ids_max: int = 100_000  # transactional ids, per node
    pooled_ids_max: int = 1_000  # of them those that the node keeps for callers without one
    pool_wait_ms: int = 5_000  # how long such a caller waits for one
    pooled_timeout_ms: int = 60_000  # of a transaction of theirs; timeout_ms_max if that is less

    def pause_ms(self, failures: int) -> int:
        """How long to wait before markers are tried again, after this number of failed attempts."""
        return min(self.retry_ms << min(max(failures - 1, 0), 20), max(self.retry_ms, self.retry_ms_max))


def check_transactional_id(transactional_id: str) -> None:
    """INVALID_REQUEST unless the name can be one."""
    size = len(transactional_id.encode("utf-8", "surrogatepass"))
    if not 0 < size <= ID_BYTES_MAX:
        raise BrokerError(
            f"a transactional id has 1 to {ID_BYTES_MAX} bytes, not {size}", code=ErrorCode.INVALID_REQUEST
        )


def check_client_id(transactional_id: str) -> None:
    """TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a name that only the node itself may use."""
    if transactional_id.startswith(RESERVED_PREFIX):
        raise BrokerError(
            f"transactional id {transactional_id!r} is reserved: names that begin with {RESERVED_PREFIX} "
            "belong to the broker. Choose another transactional.id",
            code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        )


def check_pooled_id(transactional_id: str) -> None:
    """TRANSACTIONAL_ID_AUTHORIZATION_FAILED unless the node gives out such names."""
    if not transactional_id.startswith(RESERVED_PREFIX):
        raise BrokerError(
            f"transactional id {transactional_id!r} is not one that the broker gave out",
            code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        )


def check_timeout(timeout_ms: int, config: TransactionConfig) -> None:
    """INVALID_TRANSACTION_TIMEOUT unless a transaction may be open for that long."""
    if not 0 < timeout_ms <= min(config.timeout_ms_max, NO_TIMEOUT_MS - 1):
        raise BrokerError(
            f"a transaction timeout of {timeout_ms} ms is not within 1 to {config.timeout_ms_max} ms. Set "
            "transaction.timeout.ms of the producer, or transaction.max.timeout.ms of the node",
            code=ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        )
