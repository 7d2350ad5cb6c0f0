"""One partition of the offsets topic and the groups that live in it.

A home is Loading until the partition has been read, then Ready; Failed if it cannot be read, which a person
must look at: its groups are not answered as if they had never committed anything.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence

from tailrace.broker.groups.committed import CommittedOffsets
from tailrace.broker.groups.group import Group
from tailrace.broker.groups.topic import OFFSETS_TOPIC
from tailrace.broker.groups.transaction import Transactions
from tailrace.broker.internal import Done, StateWriter
from tailrace.model import BrokerError, ErrorCode
from tailrace.records import NewRecord


class HomeStatus(enum.Enum):
    """Whether the groups of a partition can be asked."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class Resident:
    """A group with its positions, where it lives, and when its next tick is planned."""

    __slots__ = ("group", "home", "is_leaving", "offsets", "planned_ms")

    def __init__(self, group: Group, offsets: CommittedOffsets, home: Home) -> None:
        self.group = group
        self.offsets = offsets
        self.home = home
        self.planned_ms: int | None = None
        self.is_leaving = False  # tombstones of all of it are on their way to the log

    def __repr__(self) -> str:
        return f"<Resident {self.group!r} {self.offsets!r}>"


class Home:
    """The groups of one partition."""

    __slots__ = (
        "_append_timeout_ms",
        "_loaded",
        "ended_meanwhile",
        "groups",
        "partition",
        "status",
        "transactions",
        "writer",
    )

    def __init__(self, partition: int, writer: StateWriter, *, append_timeout_ms: int) -> None:
        self._append_timeout_ms = append_timeout_ms
        self.partition = partition
        self.writer = writer
        self.status = HomeStatus.LOADING
        self.groups: dict[str, Resident] = {}
        self.transactions = Transactions()
        self.ended_meanwhile: list[tuple[int, bool]] = []  # (producer id, commit): markers while Loading
        self._loaded = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Home {self.partition} {self.status.value}, {len(self.groups)} groups>"

    def become(self, status: HomeStatus) -> None:
        self.status = status
        self._loaded.set()

    async def wait_loaded(self) -> None:
        """Return when the loading ended, however it did."""
        await self._loaded.wait()

    def put(
        self, records: Sequence[NewRecord], apply: Done, sequenced: Callable[[int], None] | None = None
    ) -> None:
        """Append some time soon. `apply` is called when the outcome is known, at once if it is refused.

        `sequenced` is told where the records are in the log, before that.
        """
        try:
            self.writer.put(records, apply, sequenced)
        except BrokerError as refused:
            apply(refused.code)

    async def append(
        self, records: Sequence[NewRecord], apply: Done, sequenced: Callable[[int], None] | None = None
    ) -> ErrorCode:
        """Append and wait, but not for ever.

        `apply` is called when the outcome is known, also if nobody waits for it any more.
        """
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode) -> None:
            apply(error)
            if not answer.done():
                answer.set_result(error)

        self.put(records, done, sequenced)
        return await self._answered(answer)

    async def append_transactional(
        self,
        records: Sequence[NewRecord],
        sequenced: Callable[[int], None],
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> ErrorCode:
        """Sequence one batch of a transaction before anything else happens, and wait as `append` does.

        `sequenced` is called in the same turn, unless the log refuses the batch.
        """
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode) -> None:
            if not answer.done():
                answer.set_result(error)

        try:
            end = self.writer.sequence_transactional(
                records, done, producer_id=producer_id, producer_epoch=producer_epoch
            )
        except BrokerError as refused:
            return refused.code
        sequenced(end)
        return await self._answered(answer)

    async def _answered(self, answer: asyncio.Future[ErrorCode]) -> ErrorCode:
        try:
            async with asyncio.timeout(self._append_timeout_ms / 1000):
                return await answer
        except TimeoutError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def check_ready(self) -> None:
        """COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE unless the groups can be asked."""
        if self.status is HomeStatus.LOADING:
            raise BrokerError(
                f"{OFFSETS_TOPIC}-{self.partition} is being read",
                code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            )
        if self.status is HomeStatus.FAILED:
            raise BrokerError(
                f"{OFFSETS_TOPIC}-{self.partition} could not be read; the log of this node says why. Groups "
                "are served again once its settings are mended, or once a damaged partition is restored",
                code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            )
