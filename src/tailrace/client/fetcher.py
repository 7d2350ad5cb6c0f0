"""The partitions that a consumer reads: their positions, the fetches under way, the records that wait.

One fetch per leader runs at a time, in a task that outlives the poll that started it, so that the next
records are on their way while the last ones are being worked on. A partition that still has records is not
fetched again: what is buffered is bounded by one reply per leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tailrace.client.error import ClientError, broker_error, is_retriable
from tailrace.client.kafka import KafkaClient
from tailrace.client.pool import Channel, back_off_s
from tailrace.client.reading import RecordReader
from tailrace.client.sealed import Opening
from tailrace.client.transfer import Fetched, fetch_from
from tailrace.model import BrokerError, ErrorCode, ProtocolError, TailraceError, TopicPartition
from tailrace.records import BatchError, Record

Records: TypeAlias = dict[TopicPartition, list[Record]]
ReadError: TypeAlias = BrokerError | ClientError | ProtocolError


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """How records are fetched; the property names of Kafka's clients stand beside each."""

    read_committed: bool = False  # isolation.level
    check_crcs: bool = True  # check.crcs
    wait_ms: int = 500  # fetch.max.wait.ms
    bytes_min: int = 1  # fetch.min.bytes
    bytes_max: int = 50 * 1024 * 1024  # fetch.max.bytes
    partition_bytes_max: int = 1024 * 1024  # max.partition.fetch.bytes


class Reading:
    """What a consumer knows of one partition that it reads."""

    __slots__ = (
        "failures",
        "fetching",
        "high_watermark",
        "not_before",
        "out_of_range",
        "paused",
        "position",
        "reader",
    )

    def __init__(self) -> None:
        self.position: int | None = None
        """The offset of the next record to hand out; None until somebody looks it up."""
        self.out_of_range: int | None = None
        """The position that the broker refused, where that is why there is none."""
        self.reader: RecordReader | None = None
        self.high_watermark: int | None = None
        self.fetching = False
        self.paused = False
        self.failures = 0
        self.not_before = 0.0

    def seek(self, offset: int) -> None:
        self.position, self.reader, self.out_of_range = offset, None, None


class Held(NamedTuple):
    """A reading whose position was put back to `first`."""

    reading: Reading
    first: int
    position: int | None
    reader: RecordReader | None


class Fetcher:
    """Reads the partitions in `readings`; `arrived` is called when there may be something to hand out."""

    def __init__(
        self,
        client: KafkaClient,
        config: FetchConfig,
        *,
        arrived: Callable[[], None],
        opening: Opening | None = None,
    ) -> None:
        """`opening` decrypts what is handed out."""
        self.readings: dict[TopicPartition, Reading] = {}
        self.failure: TailraceError | None = None
        """Why a partition cannot be read, until somebody was told."""
        self._client = client
        self._config = config
        self._arrived = arrived
        self._opening = opening
        self._loop = asyncio.get_running_loop()
        self._channel = Channel("fetches")
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = 0

    def replace(self, partitions: Iterable[TopicPartition], *, keep: bool = False) -> None:
        """Read exactly these; `keep` the positions of those that were read before."""
        old = self.readings if keep else {}
        self.readings = {each: old.get(each) or Reading() for each in partitions}

    def drain(self, count_max: int) -> Records:
        """Take buffered records, beginning with another partition each time so that none starves."""
        records: Records = {}
        order = list(self.readings)
        self._turn = (self._turn + 1) % max(len(order), 1)
        for target in order[self._turn :] + order[: self._turn]:
            reading = self.readings[target]
            if reading.reader is None or reading.paused or count_max <= 0:
                continue
            try:
                taken = reading.reader.take(count_max)
            except BatchError as error:
                # What others have is handed out all the same. This one stays here until somebody seeks.
                reading.position = reading.reader.position
                reading.reader, self.failure = None, _named(error, target, reading.position)
                self._arrived()
                continue
            reading.position = reading.reader.position
            if len(taken) < count_max:
                reading.reader = None
            if self._opening is not None and taken:
                taken = self._open(self._opening, target, taken)
            if taken:
                records[target] = taken
                count_max -= len(taken)
        return records

    def _open(self, opening: Opening, target: TopicPartition, taken: list[Record]) -> list[Record]:
        """The records decrypted; before one that stops the consumer, the position stays."""
        opened = opening.open_all(target, taken)
        if opened.failure is not None:
            self.readings[target].seek(opened.next_offset)
            self.failure = opened.failure
            self._arrived()
        return opened.records

    def hold(self, firsts: Mapping[TopicPartition, int]) -> list[Held]:
        """Put positions back until what was drained may be handed out."""
        held = []
        for target, first in firsts.items():
            reading = self.readings[target]
            held.append(Held(reading, first, reading.position, reading.reader))
            reading.seek(first)
        return held

    def release(self, held: Iterable[Held]) -> None:
        """Put them where they were, unless they were moved meanwhile."""
        for reading, first, position, reader in held:
            if reading.position == first:
                reading.position, reading.reader = position, reader

    def start(self) -> None:
        """Start a fetch at every leader that has none, for the partitions that have nothing buffered."""
        now = self._loop.time()
        by_leader: dict[int, dict[TopicPartition, Reading]] = {}
        busy: set[int] = set()
        for target, reading in self.readings.items():
            info = self._client.cluster.leader_of(target)
            if reading.fetching:
                busy.add(info.leader if info else -1)
            elif reading.position is None or reading.reader or reading.paused or reading.not_before > now:
                continue
            elif info is None:
                self._start(self._find_leader(target, reading), [reading])
            else:
                by_leader.setdefault(info.leader, {})[target] = reading
        for leader, readings in by_leader.items():
            if leader not in busy:
                self._start(self._fetch(leader, readings), readings.values())

    def next_attempt(self) -> float:
        """When, in the loop's time, a partition that failed may be tried again; infinity if none did."""
        now = self._loop.time()
        waiting = [each.not_before for each in self.readings.values() if each.not_before > now]
        return min(waiting, default=float("inf"))

    async def close(self) -> None:
        """Stop what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close_channel(self._channel)

    # ---- one fetch

    def _start(self, work: Coroutine[Any, Any, None], readings: Iterable[Reading]) -> None:
        involved = list(readings)
        for reading in involved:
            reading.fetching = True

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            for reading in involved:
                reading.fetching = False
            self._arrived()

        task = self._loop.create_task(work, name="fetching")
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def _find_leader(self, target: TopicPartition, reading: Reading) -> None:
        try:
            await self._client.leader(target)
        except (BrokerError, ClientError, ProtocolError) as error:
            self._fail(reading, error)

    async def _fetch(self, leader: int, readings: Mapping[TopicPartition, Reading]) -> None:
        positions = {
            target: reading.position
            for target, reading in readings.items()
            if reading.position is not None  # a seek to the unknown may have come in between
        }
        config = self._config
        try:
            found = await fetch_from(
                self._client,
                leader,
                positions,
                max_wait_ms=config.wait_ms,
                min_bytes=config.bytes_min,
                max_bytes=config.bytes_max,
                partition_max_bytes=config.partition_bytes_max,
                read_committed=config.read_committed,
                channel=self._channel,
            )
        except (BrokerError, ClientError, ProtocolError) as error:
            for reading in readings.values():
                self._fail(reading, error)
            return
        for target, position in positions.items():
            self._receive(target, readings[target], position, found[target])

    def _receive(self, target: TopicPartition, reading: Reading, position: int, fetched: Fetched) -> None:
        if self.readings.get(target) is not reading or reading.position != position:
            return  # revoked, or moved by a seek, meanwhile
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            reading.position, reading.out_of_range = None, position
            return
        if fetched.error_code:
            self._fail(reading, broker_error(fetched.error_code, f"fetching {target}"))
            return
        reading.failures = 0
        reading.high_watermark = fetched.high_watermark
        if len(fetched.records):
            reading.reader = RecordReader(
                fetched,
                position,
                read_committed=self._config.read_committed,
                check_crcs=self._config.check_crcs,
            )

    def _fail(self, reading: Reading, error: ReadError) -> None:
        """Try a partition again later; what no retry mends is also told to whoever polls."""
        self._client.forget(error)
        reading.not_before = self._loop.time() + back_off_s(reading.failures)
        reading.failures += 1
        if not is_retriable(error):
            self.failure = error


def _named(error: BatchError, target: TopicPartition, position: int) -> BatchError:
    """The damage with its place and the way out: a consumer stays in front of it."""
    return BatchError(
        f"{target} cannot be read at offset {position}: {error}. Seek past it to go on", code=error.code
    )
