"""What is wrong with a batch: it cannot be what it says it is."""

from __future__ import annotations

from tailrace.model import BrokerError, ErrorCode


class BatchError(BrokerError):
    """A malformed, damaged or oversized batch. The message says what is wrong, with the numbers.

    `code` is what a Kafka client is told: CORRUPT_MESSAGE for bytes that do not add up, INVALID_RECORD for a
    well-formed batch that breaks a rule, MESSAGE_TOO_LARGE for one over a limit.
    """

    def __init__(self, message: str, *, code: ErrorCode = ErrorCode.CORRUPT_MESSAGE) -> None:
        super().__init__(message, code=code)


class UndecodableBatch(BatchError):
    """The records of one batch of a log cannot be decoded; those from `next_offset` on may be."""

    def __init__(self, error: BatchError, *, offset: int, next_offset: int) -> None:
        super().__init__(str(error))
        self.offset = offset
        self.next_offset = next_offset
