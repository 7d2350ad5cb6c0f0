"""What the load is made of.

Small enough for a laptop and mixed enough to touch every part of the broker: single records and batches,
readers that wait at the end of every partition, and guests that come and go, some of them without a goodbye.
Segments and retention are small, so that segments are sealed and deleted all the time and the disk stays
level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

TOPIC = "soak"
RECORD_BYTES = 100
BATCH_BYTES = 16 << 10

TOPIC_CONFIGS = {"segment.bytes": str(8 << 20), "retention.bytes": str(32 << 20)}

# Retention is looked after every five minutes by default, and the disk would show four teeth in a whole run.
BROKER_ENVIRONMENT = {"TAILRACE_BROKER__RETENTION_CHECK_INTERVAL_MS": "5000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Connections and what each has in flight; how often guests come. Producers take partitions in turn."""

    partitions: int = 4
    singles: int = 8  # producers of one record a request
    singles_in_flight: int = 5
    batchers: int = 4  # producers of batches of 16 KiB
    batchers_in_flight: int = 2
    group_every_s: float = 3.0
    connection_every_s: float = 0.5
    topic_every_s: float = 7.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Requests per second, of all producers of a kind together."""

    singles_per_s: float
    batches_per_s: float

    def scaled(self, share: float) -> Rates:
        return Rates(singles_per_s=self.singles_per_s * share, batches_per_s=self.batches_per_s * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the load's process is told; without rates it sends as much as the broker takes."""

    host: str
    port: int
    shape: Shape
    rates: Rates | None = None

    def as_row(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> Job:
        """What `as_row` gave, back from JSON."""
        shape, rates = row["shape"], row["rates"]
        assert isinstance(shape, dict)
        assert rates is None or isinstance(rates, dict)
        return cls(
            host=str(row["host"]),
            port=int(str(row["port"])),
            shape=Shape(**shape),
            rates=None if rates is None else Rates(**rates),
        )
