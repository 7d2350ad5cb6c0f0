"""Which transactional ids this node coordinates: one home per partition of the topic that it leads.

- An id whose partition is not led here is refused NOT_COORDINATOR, one whose partition is still being read
  LOADING. A client that heard "unknown" instead would give up.
- The topic is made when the first producer asks for its coordinator. Until then there are no transactions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator

from tailrace.broker.internal import partition_for
from tailrace.broker.transactions.home import Entry, Home, HomeStatus
from tailrace.broker.transactions.limits import TransactionConfig
from tailrace.broker.transactions.loading import load_partition
from tailrace.broker.transactions.ports import TransactionalState, TransactionLog
from tailrace.broker.transactions.refusal import Situation, TransactionRefused
from tailrace.broker.transactions.topic import TRANSACTIONS_TOPIC
from tailrace.model import BrokerError, StorageError
from tailrace.runtime import Supervisor

_logger = logging.getLogger(__name__)


class Directory:
    """The homes of this node. `attend` is called for every transactional id that was loaded."""

    def __init__(
        self,
        log: TransactionLog,
        *,
        states: Collection[TransactionalState],
        config: TransactionConfig,
        tasks: Supervisor,
        attend: Callable[[Entry], None],
    ) -> None:
        self._log = log
        self._states = states
        self._config = config
        self._tasks = tasks
        self._attend = attend
        self._homes: dict[int, Home] = {}
        self._closed = False

    def __len__(self) -> int:
        """Transactional ids in all homes."""
        return sum(len(home.entries) for home in self._homes.values())

    @property
    def homes(self) -> list[Home]:
        return list(self._homes.values())

    def entries(self) -> Iterator[Entry]:
        """Every transactional id; the homes may change meanwhile."""
        for home in self.homes:
            yield from list(home.entries.values())

    def find(self, transactional_id: str) -> Entry | None:
        """The transactional id, if it is known; TransactionRefused if this node may not say."""
        if not self._log.partitions:
            return None
        return self.home_of(transactional_id).entries.get(transactional_id)

    def partition_of(self, transactional_id: str) -> int:
        """Where a transactional id lives, or would; the topic exists."""
        return partition_for(transactional_id, self._log.partitions)

    def home_of(self, transactional_id: str) -> Home:
        """The home of a transactional id, known or not; the topic exists."""
        partition = self.partition_of(transactional_id)
        if self._closed or not self._log.leads(partition):
            self.resign(partition)
            raise TransactionRefused(
                f"{TRANSACTIONS_TOPIC}-{partition} is not led by this node",
                situation=Situation.NOT_COORDINATOR,
            )
        self.lead(partition)
        home = self._homes[partition]
        home.check_ready()
        return home

    # ---- leading

    async def ensure_topic(self) -> None:
        """Make the topic unless it exists; LOG_REFUSES if that does not succeed."""
        if self._log.partitions or self._closed:
            return
        try:
            async with asyncio.timeout(self._config.commit_timeout_ms / 1000):
                await self._log.ensure()
        except (BrokerError, StorageError, TimeoutError) as error:
            raise TransactionRefused(
                f"{TRANSACTIONS_TOPIC} cannot be made: {error}", situation=Situation.LOG_REFUSES
            ) from error
        for partition in self._led():
            # A partition that did not exist a moment ago holds nothing.
            if partition not in self._homes and not self._closed:
                home = self._homes[partition] = Home(partition)
                home.become(HomeStatus.READY)

    def start(self) -> None:
        """Begin to read every partition that this node leads."""
        for partition in self._led():
            self.lead(partition)

    def lead(self, partition: int) -> None:
        """This node leads a partition from now on: read it, unless that has been done."""
        if partition not in self._homes and not self._closed:
            home = self._homes[partition] = Home(partition)
            self._tasks.start(f"load {TRANSACTIONS_TOPIC}-{partition}", self._load(home))

    def read_again(self) -> None:
        """Begin to read the partitions that could not be read before."""
        for home in self.homes:
            if home.status is HomeStatus.FAILED:
                self.resign(home.partition)
                self.lead(home.partition)

    def resign(self, partition: int) -> None:
        """Another node leads a partition now: everything that is known of it is dropped."""
        home = self._homes.pop(partition, None)
        if home is not None:
            home.become(HomeStatus.FAILED)

    async def wait_loaded(self) -> None:
        """Return when no partition is being read."""
        for home in self.homes:
            await home.wait_loaded()

    def close(self) -> None:
        """Answer no request any more."""
        self._closed = True
        for partition in list(self._homes):
            self.resign(partition)

    def _led(self) -> list[int]:
        return [partition for partition in range(self._log.partitions) if self._log.leads(partition)]

    async def _load(self, home: Home) -> None:
        try:
            loaded = await load_partition(self._log, home.partition)
            # State that is still being read would miss the end of a transaction that is resumed here.
            for state in self._states:
                await state.wait_loaded()
        except (BrokerError, StorageError) as error:
            _logger.error(
                "transactions cannot be served: topic=%s partition=%d %s",
                TRANSACTIONS_TOPIC,
                home.partition,
                error,
            )
        else:
            if self._homes.get(home.partition) is home:
                for transactional_id, stored in loaded.items():
                    entry = home.entries[transactional_id] = Entry(transactional_id, home, stored)
                    self._attend(entry)
                home.become(HomeStatus.READY)
        finally:
            if home.status is HomeStatus.LOADING:
                home.become(HomeStatus.FAILED)
