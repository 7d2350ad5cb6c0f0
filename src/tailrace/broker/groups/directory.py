"""Which groups this node coordinates: one home per partition of the offsets topic that it leads.

- A group whose partition is not led here is answered NOT_COORDINATOR, one whose partition is still being read
  COORDINATOR_LOAD_IN_PROGRESS. Nothing else is said about it: a client that hears "unknown" starts afresh.
- The topic is made when the first member or commit comes. Until then there are no groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence

from tailrace.broker.groups.committed import CommittedOffsets
from tailrace.broker.groups.group import Group
from tailrace.broker.groups.home import Home, HomeStatus, Resident
from tailrace.broker.groups.limits import GroupConfig
from tailrace.broker.groups.loading import Loaded, load_partition
from tailrace.broker.groups.offsets import OffsetKey, write_offset_key
from tailrace.broker.groups.state import GroupState
from tailrace.broker.groups.topic import OFFSETS_ERRORS, OFFSETS_TOPIC
from tailrace.broker.internal import InternalLog, StateWriter, partition_for
from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.runtime import Clock, Supervisor

_logger = logging.getLogger(__name__)


class Directory:
    """The homes of this node. `attend` is called for groups with something to perform or to plan."""

    def __init__(
        self,
        log: InternalLog,
        *,
        clock: Clock,
        config: GroupConfig,
        tasks: Supervisor,
        attend: Callable[[Resident], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._clock = clock
        self._config = config
        self._tasks = tasks
        self._attend = attend
        self._on_failure = on_failure
        self._homes: dict[int, Home] = {}
        self._closed = False

    def __len__(self) -> int:
        """Groups in all homes."""
        return sum(len(home.groups) for home in self._homes.values())

    @property
    def is_open(self) -> bool:
        """Whether the offsets topic exists, so that there can be groups."""
        return self._log.partitions > 0

    @property
    def homes(self) -> list[Home]:
        return list(self._homes.values())

    def residents(self) -> Iterator[Resident]:
        """Every group; the homes may change meanwhile."""
        for home in self.homes:
            yield from list(home.groups.values())

    # Finding

    def find(self, group_id: str) -> Resident | None:
        """The group, if there is one; BrokerError if this node may not say."""
        if self._closed:
            raise BrokerError("this node is shutting down", code=ErrorCode.NOT_COORDINATOR)
        if not self._log.partitions:
            return None
        resident = self._home_of(group_id).groups.get(group_id)
        if resident is not None and resident.is_leaving:
            raise BrokerError(f"group {group_id} is being removed", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return resident

    def partition_of(self, group_id: str) -> int:
        """Where a group lives, or would; the topic exists."""
        return partition_for(group_id, self._log.partitions)

    def create(self, group_id: str) -> Resident:
        """A group that `find` did not find; POLICY_VIOLATION if there are too many."""
        if len(self) >= self._config.groups_max:
            raise BrokerError(
                f"this node has its {self._config.groups_max} groups", code=ErrorCode.POLICY_VIOLATION
            )
        home = self._home_of(group_id)
        resident = Resident(self._new_group(group_id, self._clock.steady_ms()), CommittedOffsets(), home)
        home.groups[group_id] = resident
        return resident

    def forget(self, resident: Resident) -> None:
        """A group is gone for good."""
        resident.group.die(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if resident.home.groups.get(resident.group.group_id) is resident:
            del resident.home.groups[resident.group.group_id]

    def forget_if_void(self, resident: Resident) -> None:
        """Forget a group that never was one: no members, no generation, nothing kept or coming."""
        group = resident.group
        was_never = not group.generation_id and group.state is GroupState.EMPTY
        if was_never and not group.roster.promises and not len(resident.offsets) and not resident.is_leaving:
            self.forget(resident)

    def _home_of(self, group_id: str) -> Home:
        partition = self.partition_of(group_id)
        if not self._log.leads(partition):
            self.resign(partition)
            raise BrokerError(
                f"{OFFSETS_TOPIC}-{partition} is not led by this node", code=ErrorCode.NOT_COORDINATOR
            )
        self.lead(partition)
        home = self._homes[partition]
        home.check_ready()
        return home

    def _new_group(self, group_id: str, now_ms: int) -> Group:
        return Group(
            group_id,
            now_ms=now_ms,
            size_max=self._config.group_size_max,
            initial_rebalance_delay_ms=self._config.initial_rebalance_delay_ms,
        )

    # Transactions

    def transaction_ended(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """A marker was sequenced in a partition: once it is durable, what was pending is decided.

        A partition that is still being read is told afterwards; the marker may be behind what is read.
        """
        home = self._homes.get(partition)
        if home is None:
            return  # a later reading of the partition finds the marker in it
        if home.status is HomeStatus.LOADING:
            home.ended_meanwhile.append((producer_id, commit))
            return
        ending = home.transactions.end(producer_id, commit=commit, decided=self.forget_if_void)
        if ending is not None:
            self._log.acknowledged(partition, self._log.end_offset(partition), ending)

    # Leading

    async def ensure_topic(self) -> None:
        """Make the offsets topic unless there is one; COORDINATOR_NOT_AVAILABLE if that does not succeed."""
        if self._log.partitions or self._closed:
            return
        try:
            async with asyncio.timeout(self._config.commit_timeout_ms / 1000):
                await self._log.ensure()
        except (BrokerError, StorageError, TimeoutError) as error:
            raise BrokerError(
                f"{OFFSETS_TOPIC} cannot be made: {error}", code=ErrorCode.COORDINATOR_NOT_AVAILABLE
            ) from error
        for partition in self._led():
            # Nothing can be in a partition that did not exist a moment ago.
            if partition not in self._homes and not self._closed:
                self._open(partition).become(HomeStatus.READY)

    def start(self, topics: Collection[str] | None = None) -> None:
        """Begin to read every partition that this node leads; `topics` are all that there are, if known."""
        for partition in self._led():
            self.lead(partition, topics)

    def lead(self, partition: int, topics: Collection[str] | None = None) -> None:
        """This node leads a partition from now on: read it, unless that has been done."""
        if partition not in self._homes and not self._closed:
            home = self._open(partition)
            self._tasks.start(f"load {OFFSETS_TOPIC}-{partition}", self._load(home, topics))

    def read_again(self, topics: Collection[str] | None = None) -> None:
        """Begin to read the partitions that could not be read before; `topics` as for `start`."""
        for home in self.homes:
            if home.status is HomeStatus.FAILED:
                self.resign(home.partition)
                home.writer.close()
                self.lead(home.partition, topics)

    def resign(self, partition: int) -> None:
        """Another node leads a partition now: whoever waits here is sent there."""
        home = self._homes.pop(partition, None)
        if home is None:
            return
        home.become(HomeStatus.FAILED)
        for resident in home.groups.values():
            resident.group.die(ErrorCode.NOT_COORDINATOR)
            self._attend(resident)

    @property
    def is_loaded(self) -> bool:
        """Whether the groups of every home are known."""
        return all(home.status is HomeStatus.READY for home in self._homes.values())

    async def wait_loaded(self) -> None:
        """Return when no partition is being read."""
        for home in self.homes:
            await home.wait_loaded()

    def close(self) -> None:
        """Answer nobody any more."""
        self._closed = True

    def _led(self) -> list[int]:
        return [partition for partition in range(self._log.partitions) if self._log.leads(partition)]

    def _open(self, partition: int) -> Home:
        writer = StateWriter(
            self._log,
            partition,
            topic=OFFSETS_TOPIC,
            errors=OFFSETS_ERRORS,
            on_failure=self._on_failure,
            append_bytes_max=self._config.append_bytes_max,
            queued_bytes_max=self._config.queued_bytes_max,
        )
        home = Home(partition, writer, append_timeout_ms=self._config.commit_timeout_ms)
        self._homes[partition] = home
        return home

    async def _load(self, home: Home, topics: Collection[str] | None) -> None:
        try:
            loaded = await load_partition(self._log, home.partition)
        except (BrokerError, StorageError) as error:
            _logger.error(
                "groups cannot be served: topic=%s partition=%d %s", OFFSETS_TOPIC, home.partition, error
            )
        else:
            if self._homes.get(home.partition) is home:
                if topics is not None:
                    self._clear_away(home, loaded.take_offsets_beside(topics))
                self._move_in(home, loaded)
                home.become(HomeStatus.READY)
                for producer_id, commit in home.ended_meanwhile:
                    self.transaction_ended(home.partition, producer_id, commit=commit)
                home.ended_meanwhile.clear()
        finally:
            if home.status is HomeStatus.LOADING:
                home.become(HomeStatus.FAILED)

    def _clear_away(self, home: Home, gone: Sequence[OffsetKey]) -> None:
        """Have positions forgotten whose topics are gone; if that fails the next start tries again."""
        if gone:
            now_ms = self._clock.steady_ms()
            tombstones = [(now_ms, write_offset_key(*key), None, ()) for key in gone]
            home.put(tombstones, lambda _: None)
            _logger.info(
                "offsets of deleted topics removed: log=%s-%d offsets=%d",
                OFFSETS_TOPIC,
                home.partition,
                len(gone),
            )

    def _move_in(self, home: Home, loaded: Loaded) -> None:
        now_ms = self._clock.steady_ms()
        with_offsets = (group_id for group_id, kept in loaded.offsets.items() if kept)
        undecided = (group_id for pending in loaded.pending.values() for group_id, _ in pending)
        for group_id in dict.fromkeys([*loaded.groups, *with_offsets, *undecided]):
            stored = loaded.groups.get(group_id)
            # Where only positions are known, their own times decide how long they are kept.
            group = self._new_group(group_id, 0 if stored is None else now_ms)
            if stored is not None:
                group.restore(stored, now_ms=now_ms)
            resident = Resident(group, CommittedOffsets(loaded.offsets.get(group_id)), home)
            home.groups[group_id] = resident
            self._attend(resident)
        for producer_id, pending in loaded.pending.items():
            for (group_id, partition), placed in pending.items():
                home.transactions.pend(producer_id, home.groups[group_id], {partition: placed})
