"""One life of a broker on the simulated disk, and what a reader finds in it."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tailrace.broker import Broker, BrokerConfig, NewTopic, Node, Partition
from tailrace.broker.gate import Access
from tailrace.broker.visible_records import read
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.model import BrokerId, ErrorCode, TopicPartition
from tailrace.model.operation import Operation
from tailrace.model.session import INTERNAL
from tailrace.storage import COMMIT
from tailrace.storage.segment import DirectoryConfig, SegmentStorage
from tailrace.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from tailrace.testing.transfers.oracle import Oracle, Seen, Wrong
from tailrace.testing.transfers.producer import GROUP

_NODE = BrokerId(1)
_READ_BYTES = 1500
_JOURNAL_FILE = 32 * 1024
TOPICS = {
    "plain": {"segment.bytes": "4000"},
    "loose": {"flush.messages": "1000000", "segment.bytes": "4000"},
    "compacted": {"cleanup.policy": "compact", "segment.bytes": "2000", "delete.retention.ms": "0"},
}
PLACES = [TopicPartition(name, index) for name in TOPICS for index in range(2)]


class SimulatedNode:
    """A broker with its storage, in one simulated process."""

    def __init__(
        self, disk: SimulatedDisk, loop: SimulatedLoop, store: MemoryStore, rng: random.Random
    ) -> None:
        clock = SimulatedClock(loop)
        config = DirectoryConfig(
            fsync=COMMIT,
            journal_file_bytes=_JOURNAL_FILE,
            journal_bytes_max=3 * _JOURNAL_FILE,
            checkpoint_bytes=_JOURNAL_FILE,
            checkpoint_interval_ms=rng.choice([5, 50, 5000]),
            round_bytes_max=rng.choice([1, 400, 4000]),  # an end of a transaction may take several rounds
            tail_bytes_max=rng.choice([0, 3000, 1 << 20]),
            inline_bytes_max=900,
            loose_inline_bytes_max=rng.choice([0, 300]),
            apply_bytes=rng.choice([1, 2000, 1 << 20]),
            apply_delay_ms=rng.choice([0, 2, 20]),
            sync_piece_bytes=3000,
            reserve_bytes=1000,
            free_bytes_min=0,
        )
        self.storage = SegmentStorage(disk, "sim", config=config, clock=clock, rng=rng)
        self.broker = Broker(
            node_id=_NODE,
            nodes={_NODE: Node(node_id=_NODE)},
            storage=self.storage,
            metadata=StoredMetadata(store),
            config=BrokerConfig.read(
                {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "2"}
            ),
            clock=clock,
        )

    async def start(self) -> None:
        """Recover, and wait until transactions can be asked for."""
        await self.storage.start()
        await self.broker.start()
        for name, configs in TOPICS.items():
            if self.broker.topics.get(name) is None:
                await self.broker.topics.create(NewTopic(name=name, partitions=2, configs=configs))
        await self.broker.groups.find_partition(GROUP)  # which makes its topic, as the next line does
        await self.broker.transactions.find_partition(GROUP)
        await self.broker.groups.wait_loaded()
        await self.broker.transactions.wait_loaded()

    def access(self) -> Access:
        """As a new connection has it."""
        return self.broker.gate.access(INTERNAL)

    def partitions(self) -> Iterator[tuple[TopicPartition, Partition]]:
        access = self.access()
        return ((tp, access.readable(tp)) for tp in PLACES)

    async def check(self, oracle: Oracle, positions: dict[str, TopicPartition]) -> None:
        """Read everything, one partition after the other, and compare; then the positions of the group."""
        oracle.check([(tp, await _read(partition, oracle.due(tp))) for tp, partition in self.partitions()])
        group = self.access().group(GROUP, Operation.READ)
        found = group.fetch_offsets(positions.values(), require_stable=True)
        for name, tp in positions.items():
            if found[tp].error is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                oracle.check_position(name, found[tp].offset)

    def check_all_ended(self, positions: dict[str, TopicPartition]) -> None:
        """No transaction is open: nothing holds back a reader, and nothing hangs."""
        found = (
            self.access().group(GROUP, Operation.READ).fetch_offsets(positions.values(), require_stable=True)
        )
        if any(each.error for each in found.values()):
            raise Wrong(f"positions are not stable: {found}")
        for tp, partition in self.partitions():
            if partition.last_stable_offset != partition.high_watermark:
                raise Wrong(
                    f"{tp} is stable up to {partition.last_stable_offset}, {partition.high_watermark=}"
                )
        transactions = self.broker.transactions
        transactions.look_for_hanging()
        if transactions.hanging or transactions.open_count:
            raise Wrong(f"{transactions.hanging} hang, {transactions.open_count} are open")


async def _read(partition: Partition, due: list[bytes]) -> Seen:
    """What is shown first: what is stored later holds it too."""
    last_stable = partition.last_stable_offset
    shown = await _values(partition, read_uncommitted=False, end=last_stable)
    stored = await _values(partition, read_uncommitted=True, end=partition.high_watermark)
    if len(dict(stored)) != len(stored):
        raise Wrong(f"{partition} holds a record twice")
    return Seen(stored=dict(stored), shown=[value for value, _ in shown], last_stable=last_stable, due=due)


async def _values(partition: Partition, *, read_uncommitted: bool, end: int) -> list[tuple[bytes, int]]:
    offset, found = int(partition.start_offset), []
    while offset < end:
        portion = await read(
            partition, offset, bytes_max=_READ_BYTES, end=end, read_uncommitted=read_uncommitted
        )
        found += [(bytes(record.value or b""), record.offset) for record in portion.records()]
        if portion.next_offset <= offset:
            raise Wrong(f"{partition}: a read at {offset} leads nowhere")
        offset = portion.next_offset
    return found
