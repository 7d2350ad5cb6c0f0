"""Bounds and defaults of the native listener.

Every queue of the listener has its bound here, but for the bytes of requests, which the whole node bounds
(`net/budget.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.model import ConfigError
from tailrace.wire.native import FRAME_BYTES_MIN

_KIB = 1024
_MIB = 1024 * _KIB

INTERVALS_TO_DEATH = 3
"""Who is silent for so many of the intervals that he announced is dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeConfig:
    """What one listener allows; the names say the unit last."""

    connections_max: int = 10_000  # more are accepted and closed at once
    connections_per_address_max: int = 0  # 0: no bound of its own
    close_grace_s: float = 5.0  # how long replies under way may take to leave at the end
    heartbeat_interval_ms: int = 30_000  # of this side, and of a client that announces none

    # Reading. A frame must arrive within frame_timeout_s plus a second for every MiB of it.
    frame_bytes_max: int = 8 * _MIB
    frame_timeout_s: float = 30.0
    unanswered_requests_max: int = 10_000  # of one connection; then it is not read
    unanswered_bytes_max: int = 32 * _MIB  # likewise, but for a single larger request
    request_timeout_s: float = 60.0  # what is not done by then is answered with an error

    # Writing. With so much unread by the client, its subscriptions deliver nothing more to it; with
    # reply_bytes_max on top, no request of its is taken.
    out_buffer_bytes_max: int = 1 * _MIB
    reply_bytes_max: int = 1 * _MIB

    # One connection's turn, after which the others get theirs. All requests of one read fit into it, since
    # they are stored together.
    turn_bytes: int = 512 * _KIB
    turn_requests: int = 2048

    # Subscriptions.
    subscriptions_max: int = 1_000  # that one connection is a member of
    credit_default: int = 100
    credit_max: int = 10_000
    pull_count_max: int = 1_000
    pull_wait_ms_max: int = 60_000
    describe_bytes_max: int = 8 * _MIB  # of one answer

    # Transactions. Their time is bounded by transaction.max.timeout.ms of the node.
    transactions_max: int = 16  # open on one connection
    transaction_acks_max: int = 10_000  # messages that one of them acknowledges
    transaction_timeout_ms: int = 60_000  # of a client that names none
    commit_again_s: float = 60.0  # how long an id of the node is kept for a client that repeats its commit

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            least = 0 if name in _MAY_BE_ZERO else 1 if isinstance(value, int) else 0.001
            if value < least:
                raise ConfigError(f"{name} = {value} is too small: it must be {least} or more")
        if self.frame_bytes_max < FRAME_BYTES_MIN:
            raise ConfigError(
                f"frame_bytes_max = {self.frame_bytes_max} is too small: an empty frame has {FRAME_BYTES_MIN}"
            )
        if self.credit_default > self.credit_max:
            raise ConfigError(
                f"credit_default = {self.credit_default} is over credit_max = {self.credit_max}"
            )


_MAY_BE_ZERO = frozenset({"connections_per_address_max", "close_grace_s", "reply_bytes_max"})
