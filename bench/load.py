"""Every load, as a table.

A wire load has parts: so many connections with so many requests in flight, all alike. The figures are those
of its last part; the parts before are what goes on beside it. Durable or not is the target's business: `on`
says which targets a load is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Literal

KIB, MB = 1 << 10, 1_000_000
RECORD_BYTES = 100

Kind = Literal["produce", "fetch"]
On = Literal["relaxed", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Connections that do the same. `batch_bytes` 0 is a batch of a single record of 100 bytes."""

    kind: Kind
    connections: int
    in_flight: int = 1
    batch_bytes: int = 0
    partitions: int = 1  # connections take them in turn


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLoad:
    """Prebuilt frames over raw sockets."""

    name: str
    title: str
    parts: tuple[Part, ...]
    on: On


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLoad:
    """What a user of confluent-kafka gets: as much as it can, first in, then out again."""

    name: str
    title: str
    record_bytes: int
    partitions: int
    compression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLoad:
    """From a record's due time at the producer to the consumer's hands, at a fixed rate."""

    name: str
    title: str
    per_s: int
    record_bytes: int = RECORD_BYTES


Load = WireLoad | ClientLoad | LatencyLoad


def _producers(name: str, *, connections: int, partitions: int = 1) -> WireLoad:
    where = "one partition" if partitions == 1 else f"{partitions} partitions"
    who = "1 producer" if connections == 1 else f"{connections} producers"
    return WireLoad(
        name=name,
        title=f"{who}, one record a request, wait for each, {where}",
        parts=(Part(kind="produce", connections=connections, partitions=partitions),),
        on="all",
    )


WIRE = (
    WireLoad(
        name="unbatched",
        title="produce one record a request, 8 connections x 5 in flight",
        parts=(Part(kind="produce", connections=8, in_flight=5),),
        on="relaxed",
    ),
    WireLoad(
        name="produce-16k",
        title="produce 16 KiB, 4 connections x 5 in flight",
        parts=(Part(kind="produce", connections=4, in_flight=5, batch_bytes=16 * KIB),),
        on="relaxed",
    ),
    WireLoad(
        name="produce-1m",
        title="produce 1 MB, 4 connections x 2 in flight",
        parts=(Part(kind="produce", connections=4, in_flight=2, batch_bytes=MB),),
        on="relaxed",
    ),
    WireLoad(
        name="fetch-16k",
        title="fetch 16 KB, 4 connections",
        parts=(Part(kind="fetch", connections=4, batch_bytes=16_000),),
        on="relaxed",
    ),
    WireLoad(
        name="fetch-1m-1",
        title="fetch 1 MB, 1 connection",
        parts=(Part(kind="fetch", connections=1, batch_bytes=MB),),
        on="relaxed",
    ),
    WireLoad(
        name="fetch-1m-4",
        title="fetch 1 MB, 4 connections",
        parts=(Part(kind="fetch", connections=4, batch_bytes=MB),),
        on="relaxed",
    ),
    WireLoad(
        name="fairness",
        title="one record at a time, beside 4 connections that send 1 MB each",
        parts=(
            Part(kind="produce", connections=4, in_flight=2, batch_bytes=MB),
            Part(kind="produce", connections=1),
        ),
        on="relaxed",
    ),
)

PRODUCERS = (
    _producers("producers-1", connections=1),
    _producers("producers-16", connections=16),
    _producers("producers-64", connections=64),
    _producers("producers-64x64", connections=64, partitions=64),
)


def _shapes() -> Iterator[ClientLoad]:
    for record_bytes, size in ((100, "100 B"), (KIB, "1 KiB"), (10 * KIB, "10 KiB")):
        for partitions in (1, 6):
            for compression in ("none", "lz4"):
                where = "1 partition" if partitions == 1 else f"{partitions} partitions"
                yield ClientLoad(
                    name=f"client-{record_bytes}-{partitions}-{compression}",
                    title=f"confluent-kafka, {size}, {where}, {compression}",
                    record_bytes=record_bytes,
                    partitions=partitions,
                    compression=compression,
                )


CLIENT = tuple(_shapes())
LATENCY = (
    LatencyLoad(name="latency-1k", title="end to end, 1,000 records/s", per_s=1_000),
    LatencyLoad(name="latency-10k", title="end to end, 10,000 records/s", per_s=10_000),
)
LOADS: tuple[Load, ...] = (*WIRE, *PRODUCERS, *CLIENT, *LATENCY)

_QUICK = {"client-100-1-none", "client-1024-6-lz4", "client-10240-1-none"}
KINDS = {"wire": WIRE, "producers": PRODUCERS, "client": CLIENT, "latency": LATENCY}


def plan_loads(*, only: tuple[str, ...], quick: bool) -> list[Load]:
    """Those that a word of `only` is the kind of, or begins; else all. Quick takes three client shapes."""
    unknown = [word for word in only if not any(_matches(load, word) for load in LOADS)]
    if unknown:
        raise ValueError(f"no load is called {unknown[0]!r}; there are {', '.join((*KINDS, *names()))}")
    chosen = [load for load in LOADS if not only or any(_matches(load, word) for word in only)]
    return [load for load in chosen if not quick or only or load not in CLIENT or load.name in _QUICK]


def names() -> list[str]:
    return [load.name for load in LOADS]


def _matches(load: Load, word: str) -> bool:
    return load.name.startswith(word) or (word in KINDS and load in KINDS[word])


@dataclass(frozen=True, slots=True, kw_only=True)
class WireJob:
    """What the generator is told, as JSON on its standard input."""

    dialect: str
    host: str
    port: int
    durable: bool
    pid: int  # of the server, to account for
    parts: tuple[Part, ...]
    warm_s: float
    seconds: float
    topic: str = "bench"
    topic_configs: dict[str, str] = field(default_factory=dict)

    def as_row(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_row(cls, row: dict[str, object]) -> WireJob:
        """The reverse of `as_row`."""
        parts = row["parts"]
        assert isinstance(parts, list)
        return cls(**{**row, "parts": tuple(Part(**part) for part in parts)})  # type: ignore[arg-type]
