"""Bounds and defaults of the Kafka listener.

Every queue of the listener has its bound here, but for the bytes of requests, which the whole node bounds
(`net/budget.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.model import ConfigError

_KIB = 1024
_MIB = 1024 * _KIB

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """What one listener allows; the names say the unit last."""

    # What clients are told to connect to: "auto" is the address they reached us by, else "host:port".
    advertised: str = AUTO

    connections_max: int = 10_000  # more are accepted and closed at once
    connections_per_address_max: int = 0  # 0: no bound of its own
    idle_timeout_s: float = 600.0  # silent for so long, and nothing under way: closed
    close_grace_s: float = 5.0  # how long replies under way may take to leave at the end

    # Reading. A frame must arrive within frame_timeout_s plus a second for every MiB of it.
    frame_bytes_max: int = 100 * _MIB
    frame_timeout_s: float = 30.0
    small_request_bytes: int = 64 * _KIB  # a request up to this size is served as soon as it is read;
    large_requests_bytes_max: int = 2 * _MIB  # larger ones that are served at a time; others wait, read whole
    large_requests_bytes_slow_max: int = 8 * _MIB  # likewise, while the disk takes long to sync
    unanswered_requests_max: int = 1_000  # of one connection; then it is not read
    unanswered_bytes_max: int = 32 * _MIB  # likewise, but for a single larger request

    # Writing. The transport holds one piece at most; what waits behind it counts towards the second bound.
    piece_bytes: int = 256 * _KIB  # a fetch reply is loaded and written in pieces of about this size
    reply_bytes_max: int = 4 * _MIB  # replies that are ready and cannot leave; then no request is taken

    # One connection's turn, after which the others get theirs.
    turn_bytes: int = 512 * _KIB
    turn_requests: int = 64

    # Fetch.
    fetch_bytes_max: int = 55 * _MIB  # of one reply, whatever the client would take
    fetch_wait_ms_max: int = 300_000
    sessions_max: int = 1_000  # fetch sessions (KIP-227)
    session_partitions_max: int = 200_000  # of all sessions together, and of one request
    session_idle_s: float = 120.0  # a session that was used since is not evicted for a new one

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            least = 0 if name in _MAY_BE_ZERO else 1 if isinstance(value, int) else 0.001
            if not isinstance(value, str) and value < least:
                raise ConfigError(f"{name} = {value} is too small: it must be {least} or more")
        if self.advertised != AUTO:
            split_address(self.advertised)


_MAY_BE_ZERO = frozenset({"connections_per_address_max", "close_grace_s"})


def split_address(text: str) -> tuple[str, int]:
    """Host and port of "host:port"; an IPv6 host stands in brackets."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(
            f'advertised = "{text}" is not an address. Write host:port, such as broker1.example.org:9092, '
            'or "auto" for the address that a client connected to'
        )
    return host, int(port)
