"""Settings and bounds of the tiered engine."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.model.address import Address
from tailrace.postgres import Dsn
from tailrace.security.secret import Secret
from tailrace.storage.api import COMMIT, Fsync

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisConfig:
    """Where the cache is, and how it is used."""

    address: Address
    user: str = ""
    password: Secret | None = None
    database: int = 0
    expire_s: int = 3600  # of a chunk
    deadline_s: float = 0.05  # of a read, after which PostgreSQL is asked
    queue_bytes_max: int = 16 * _MIB  # of chunks that wait to be written; further ones are dropped
    value_bytes_max: int = 4 * _MIB  # a larger chunk is not cached
    failures_max: int = 5  # in a row open the breaker


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredConfig:
    """Every queue has its bound here."""

    dsn: Dsn
    redis: RedisConfig | None = None
    fsync: Fsync = COMMIT  # of partitions that do not choose for themselves
    chunk_bytes: int = 1 * _MIB  # a chunk grows to about this; a larger batch is a chunk of its own
    round_bytes_max: int = 4 * _MIB  # what one round takes at most, but for its first entry
    copy_bytes_min: int = 2 * _MIB  # a larger round is sent by COPY
    batch_bytes_max: int = 64 * _MIB
    queue_bytes_max: int = 128 * _MIB  # appended and not yet durable; then appends are refused
    tail_bytes_max: int = 64 * _MIB  # of memory: batches that are committed and kept for readers
    chunk_cache_bytes: int = 16 * _MIB  # chunks that were read back
    recent_chunks_max: int = 65_536  # of all logs: names of chunks in memory, by which Redis is asked
    readers: int = 4  # connections
    days_ahead: int = 7  # for which there are tables
    snapshot_interval_s: float = 60.0
    watch_interval_s: float = 1.0  # how often the epoch is looked at
    statement_s: float = 10.0  # without an answer, the outcome is unknown
