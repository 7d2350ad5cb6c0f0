"""One partition of the transaction topic and the transactional ids that live in it."""

from __future__ import annotations

import asyncio
import enum

from tailrace.broker.transactions.codec import write_key
from tailrace.broker.transactions.refusal import Situation, TransactionRefused
from tailrace.broker.transactions.state import StoredTransaction
from tailrace.broker.transactions.topic import TRANSACTIONS_TOPIC
from tailrace.model import Offset


class HomeStatus(enum.Enum):
    """Whether the transactional ids of a partition can be asked.

    A home is Loading until its partition has been read and every Prepare in it is resumed. It is Failed if
    the partition cannot be read, and then needs a person: its ids are not answered as if they were new.
    """

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class Entry:
    """A transactional id: what is stored, and what only this process knows of it."""

    __slots__ = (
        "connections",
        "deadline_ms",
        "end",
        "failures",
        "home",
        "key",
        "planned_ms",
        "stored",
        "transactional_id",
    )

    def __init__(self, transactional_id: str, home: Home, stored: StoredTransaction) -> None:
        self.transactional_id = transactional_id
        self.key = write_key(transactional_id)  # of its records
        self.home = home
        self.stored = stored
        self.end = Offset(0)  # of its newest record: what is stored is durable when the log is up to here
        self.deadline_ms = 0  # when an Ongoing transaction is aborted
        self.planned_ms: int | None = None  # when its next look is planned
        self.failures = (
            0  # attempts to write the markers of this Prepare, and its Complete, that were refused
        )
        self.connections: dict[bool, int] = {}
        """The newest connection that asked the coordinator of transactions (False) or of groups (True)."""

    def __repr__(self) -> str:
        stored = self.stored
        return f"<Entry {self.transactional_id} {stored.state.label} {stored.producer_id}/{stored.epoch}>"


class Home:
    """The transactional ids of one partition."""

    __slots__ = ("_loaded", "entries", "partition", "status")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.status = HomeStatus.LOADING
        self.entries: dict[str, Entry] = {}
        self._loaded = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Home {self.partition} {self.status.value}, {len(self.entries)} transactional ids>"

    def become(self, status: HomeStatus) -> None:
        self.status = status
        self._loaded.set()

    async def wait_loaded(self) -> None:
        """Return when the loading ended, however it did."""
        await self._loaded.wait()

    def check_ready(self) -> None:
        """LOADING or LOG_REFUSES unless the transactional ids can be asked."""
        if self.status is HomeStatus.LOADING:
            raise TransactionRefused(
                f"{TRANSACTIONS_TOPIC}-{self.partition} is being read", situation=Situation.LOADING
            )
        if self.status is HomeStatus.FAILED:
            raise TransactionRefused(
                f"{TRANSACTIONS_TOPIC}-{self.partition} could not be read; the log of this node says why",
                situation=Situation.LOG_REFUSES,
            )
