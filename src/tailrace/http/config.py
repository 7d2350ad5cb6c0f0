"""Bounds and defaults of the HTTP listener. Every queue and every body of the listener has its bound here."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.model import ConfigError

_KIB = 1024
_MIB = 1024 * _KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """What one listener allows; the names say the unit last."""

    connections_max: int = 10_000  # more are accepted and closed at once
    connections_per_address_max: int = 0  # 0: no bound of its own
    close_grace_s: float = 5.0  # how long answers under way may take to leave at the end
    idle_timeout_s: float = 75.0  # of a connection without a request; browsers keep theirs about that long
    allowed_hosts: tuple[str, ...] = ()  # names by which others may call this node, beside loopback's

    # Reading.
    head_bytes_max: int = 64 * _KIB  # of request line and headers together
    head_timeout_s: float = 15.0  # from the first byte of a request to the end of its headers
    body_bytes_max: int = 1 * _MIB  # of a body that is taken as a whole
    body_timeout_s: float = 60.0  # between two pieces of a body
    line_bytes_max: int = 1 * _MIB  # of a line of NDJSON, whose body has no bound of its own
    batch_bytes: int = 256 * _KIB  # of NDJSON lines that are stored together
    request_timeout_s: float = 60.0  # what is not done by then is answered with an error

    # Answering.
    records_max: int = 10_000  # of one read
    read_bytes_max: int = 8 * _MIB  # of one read
    answers_bytes_max: int = 64 * _MIB  # of large answers that are made at a time; others wait
    wait_ms_max: int = 60_000  # that a read or a pull may wait for more
    pull_count_max: int = 1_000
    pull_idle_s: float = 10.0  # without a pull, until the listener's place in a subscription is given up

    # Live streams.
    streams_max: int = 10_000  # tails and WebSockets, of all clients together
    ring_bytes_max: int = 4 * _MIB  # of one topic: what its tails have not all sent
    ring_records_max: int = 20_000
    stream_buffer_bytes_max: int = 256 * _KIB  # of one client that does not read; then it is skipped ahead
    keepalive_s: float = 15.0  # between two signs of life of a stream on which nothing happens

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, tuple):
                continue
            least = 0 if name in _MAY_BE_ZERO else 1 if isinstance(value, int) else 0.001
            if value < least:
                raise ConfigError(f"{name} = {value} is too small: it must be {least} or more")


_MAY_BE_ZERO = frozenset({"connections_per_address_max", "close_grace_s", "wait_ms_max"})
