"""The decisions of exactly-once writes: one compacted topic of the cluster, read by drivers and tasks.

    key      the id of the query
    value    {"v":1, "batch":N, "run":false, "two_phase":true,
              "winners":[[transactional id, producer id, epoch, rows], ...]}

The value is the newest batch of the query that is decided, and the transactions that make it up. With
"done":true, of a run alone, every one of them is committed.

A decision counts when the transaction that wrote it has committed, so readers read committed records, and to
the end: a decision that is pending hides those behind it for as long as its EndTxn takes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from tailrace.client.admin import create_topic, topic_configs
from tailrace.client.error import TimedOut, broker_error
from tailrace.client.offsets import EARLIEST, LATEST
from tailrace.client.reading import RecordReader
from tailrace.model import BrokerError, ConfigError, ErrorCode, TopicPartition
from tailrace.records import BytesLike, Compression, build_batch
from tailrace.spark.link import BrokerLink
from tailrace.spark.transacting import Opened, join

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient

TOPIC = "_tailrace_spark_decisions"
PLACE = TopicPartition(TOPIC, 0)
KEPT_MS = 7 * 24 * 3600 * 1000
"""For how long the decision of a run that is done is kept: longer than any attempt of it is late."""

_READ_S = 60.0  # longer than the transaction of a driver that died may hide what is behind it
_WAIT_MS = 500
_RECORDS_MAX = 100_000
_logs: WeakKeyDictionary[BrokerLink, DecisionLog] = WeakKeyDictionary()


class Winner(NamedTuple):
    """A transaction that is part of a batch."""

    opened: Opened
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Which transactions make up a batch of a query."""

    query: str
    batch: int
    winners: Sequence[Winner]
    is_run: bool  # of a DataFrame: nobody writes it again
    two_phase: bool
    is_done: bool = False
    decided_ms: int = -1

    def covers(self, batch: int) -> bool:
        """Whether a batch is decided. The newest one tells of those before it."""
        return self.batch >= batch


class DecisionLog:
    """What one process knows of the decisions, as of the last time it read to the end."""

    def __init__(self) -> None:
        self.decisions: dict[str, Decision] = {}
        self.is_ready = False  # the topic is there, and keeps its records
        self._position = 0
        self._reading = asyncio.Lock()

    async def read_now(self, client: KafkaClient) -> None:
        """Know what is decided, but for what a decision that is pending hides."""
        await self._read(client, read_committed=True)

    async def read_to_end(self, client: KafkaClient) -> None:
        """Know everything that was decided before this call; TimedOut while a decision is pending."""
        await self._read(client, read_committed=False)

    async def _read(self, client: KafkaClient, *, read_committed: bool) -> None:
        async with self._reading:
            found = await client.list_offsets({PLACE: LATEST}, read_committed=read_committed)
            end = found[PLACE].offset
            if end < self._position:
                self._forget()  # the topic was made anew
            deadline = time.monotonic() + _READ_S
            while self._position < end:
                if time.monotonic() > deadline:
                    raise TimedOut(
                        f"reading {TOPIC} did not come to its end within {_READ_S:g} s: a decision at offset"
                        f" {self._position} is pending. Try: tailrace txn list --state Ongoing"
                    )
                await self._read_on(client)

    async def _read_on(self, client: KafkaClient) -> None:
        fetched = (await client.fetch({PLACE: self._position}, max_wait_ms=_WAIT_MS, read_committed=True))[
            PLACE
        ]
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._forget()
            self._position = (await client.list_offsets({PLACE: EARLIEST}))[PLACE].offset
            return
        if fetched.error_code:
            client.forget(error := broker_error(fetched.error_code, f"reading {TOPIC}"))
            if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE):
                return
            raise error
        reader = RecordReader(fetched, self._position, read_committed=True)
        for record in reader.take(_RECORDS_MAX):
            if record.key is not None:
                self._apply(bytes(record.key).decode(), record.value, record.timestamp)
        self._position = reader.position

    def _apply(self, query: str, value: BytesLike | None, timestamp_ms: int) -> None:
        if value is None:
            self.decisions.pop(query, None)
        else:
            self.decisions[query] = _read_decision(query, json.loads(bytes(value)), timestamp_ms)

    def _forget(self) -> None:
        self._position = 0
        self.decisions.clear()

    def is_decided(self, query: str, batch: int) -> bool:
        decision = self.decisions.get(query)
        return decision is not None and decision.covers(batch)


def log_of(link: BrokerLink) -> DecisionLog:
    """What this process knows of the decisions of a cluster. It is used in the loop of the link alone."""
    return _logs.setdefault(link, DecisionLog())


async def ensure_topic(client: KafkaClient, log: DecisionLog) -> None:
    """Have the topic of decisions; ConfigError if one of that name forgets what it should keep."""
    if log.is_ready:
        return
    if (await client.metadata([TOPIC]))[TOPIC].error:
        try:
            await create_topic(client, TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another driver was quicker
                raise
    await client.topic(TOPIC)
    configs = {each.name: each.value for each in await topic_configs(client, TOPIC)}
    if configs.get("cleanup.policy") != "compact":
        raise ConfigError(
            f"topic {TOPIC} has cleanup.policy={configs.get('cleanup.policy')}, so decisions of exactly-once"
            f" writes would be deleted. Try: tailrace topic alter {TOPIC} --config cleanup.policy=compact"
        )
    log.is_ready = True


async def write_decision(client: KafkaClient, driver: Opened, decision: Decision) -> None:
    """Write a decision in the transaction of a driver, which has to be committed for it to count."""
    await join(client, driver, [PLACE])
    batch = build_batch(
        [(time.time_ns() // 1_000_000, decision.query.encode(), _write_decision(decision), ())],
        producer_id=driver.producer_id,
        producer_epoch=driver.epoch,
        base_sequence=0,
        transactional=True,
        compression=Compression.GZIP,
    )
    await client.produce(*PLACE, batch, transactional_id=driver.transactional_id)


async def mark_done(client: KafkaClient, decision: Decision) -> None:
    """Say that every transaction of a run is committed. To say so twice is harmless."""
    value = _write_decision(decision, is_done=True)
    await _write(client, {decision.query: value})


async def forget_runs(client: KafkaClient, runs: Iterable[str]) -> None:
    """Let compaction remove what is known of runs."""
    await _write(client, dict.fromkeys(runs))


async def _write(client: KafkaClient, values: Mapping[str, bytes | None]) -> None:
    now_ms = time.time_ns() // 1_000_000
    records = [(now_ms, key.encode(), value, ()) for key, value in values.items()]
    if records:
        await client.produce(*PLACE, build_batch(records))


def _write_decision(decision: Decision, *, is_done: bool = False) -> bytes:
    fields: dict[str, Any] = {
        "v": 1,
        "batch": decision.batch,
        "run": decision.is_run,
        "two_phase": decision.two_phase,
        "winners": [] if is_done else [[*each.opened, each.rows] for each in decision.winners],
    }
    if is_done:
        fields["done"] = True
    return json.dumps(fields, separators=(",", ":")).encode()


def _read_decision(query: str, fields: Mapping[str, Any], timestamp_ms: int) -> Decision:
    return Decision(
        query=query,
        batch=int(fields["batch"]),
        winners=[
            Winner(Opened(str(name), int(producer_id), int(epoch)), int(rows))
            for name, producer_id, epoch, rows in fields["winners"]
        ],
        is_run=bool(fields["run"]),
        two_phase=bool(fields["two_phase"]),
        is_done=bool(fields.get("done")),
        decided_ms=timestamp_ms,
    )
