"""An asyncio consumer: reads partitions that it was given, or those that its group assigned to it.

`poll` hands records out and moves the positions; everything else follows from it. Whatever has to happen
before records can come (joining the group, finding positions) runs in one task that outlives a poll too
short for it.

A position is the offset of the next record that `poll` will hand out. It starts at the group's committed
offset, or where `reset` says. Committing commits positions, so a record that poll has not returned is never
committed: at least once.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from tailrace.client.error import ClientClosed, ClientError, NoOffset, TimedOut, UnknownTopic
from tailrace.client.fetcher import FetchConfig, Fetcher, Reading, Records
from tailrace.client.kafka import KafkaClient
from tailrace.client.membership import GroupConfig, Membership
from tailrace.client.offsets import EARLIEST, LATEST
from tailrace.client.sealed import Letters, begin_reading
from tailrace.client.transaction import GroupMetadata
from tailrace.model import BrokerError, ErrorCode, ProtocolError, TopicPartition

if TYPE_CHECKING:
    from tailrace.security.messages import Encryption, ReadCounts

_log = logging.getLogger(__name__)

Reset: TypeAlias = Literal["earliest", "latest", "none"]
Listener: TypeAlias = Callable[[Sequence[TopicPartition]], Awaitable[None] | None]

_MISSING_TOPIC_S = 1.0  # how often to look for a subscribed topic that does not exist yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How records are read; the property names of Kafka's clients stand beside each."""

    group: GroupConfig | None = None
    fetch: FetchConfig = field(default_factory=FetchConfig)
    reset: Reset = "latest"  # auto.offset.reset
    auto_commit: bool = True  # enable.auto.commit; only with a group
    auto_commit_interval_s: float = 5.0  # auto.commit.interval.ms
    records_max: int = 500  # max.poll.records
    metadata_age_max_s: float = 300.0  # metadata.max.age.ms
    create_topics: bool = True  # allow.auto.create.topics


class Consumer:
    """Reads records through a client. Use it as an async context manager; leaving it commits and leaves."""

    def __init__(
        self,
        client: KafkaClient,
        config: ConsumerConfig | None = None,
        *,
        encryption: Encryption | None = None,
    ) -> None:
        """With `encryption` records are decrypted, and refused ones are dealt with as it says."""
        self.config = config or ConsumerConfig()
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()  # records, a reply, or something to do for the group
        group = None if self.config.group is None else self.config.group.group
        self._opening = begin_reading(encryption, client, group=group)
        self._fetcher = Fetcher(client, self.config.fetch, arrived=self._arrived.set, opening=self._opening)
        self._membership: Membership | None = None
        if self.config.group is not None:
            self._membership = Membership(client, self.config.group, changed=self._arrived.set)
        self._topics: frozenset[str] | None = None  # subscribed by name
        self._pattern: re.Pattern[str] | None = None  # subscribed by pattern
        self._counts: dict[str, int] = {}  # partitions of the subscribed topics when we last looked
        self._on_assigned: Listener | None = None
        self._on_revoked: Listener | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None
        self._commit_at = self._loop.time() + self.config.auto_commit_interval_s
        self._looked_at = self._loop.time()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- what to read

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, whatever a group may think of it."""
        if self._subscribed:
            raise ClientError("a consumer that has subscribed cannot be assigned partitions by hand")
        self._fetcher.replace(partitions, keep=True)
        self._arrived.set()

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
    ) -> None:
        """Share the partitions of these topics, or of those whose name begins as a pattern says."""
        if self._membership is None:
            raise ClientError("subscribing needs a group: set group.id, or use assign")
        if self._readings and not self._subscribed:
            raise ClientError("a consumer that was assigned partitions by hand cannot subscribe")
        if isinstance(topics, re.Pattern):
            self._topics, self._pattern = None, topics
        else:
            self._topics, self._pattern = frozenset(topics), None
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._membership.rejoin_needed = True
        self._arrived.set()

    async def unsubscribe(self) -> None:
        """Leave the group and read nothing."""
        await self._stop_preparing()
        if self._membership is not None and self._subscribed:
            await self._give_back()
            await self._membership.leave()
        self._topics = self._pattern = None
        self._fetcher.replace(())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._readings)

    @property
    def subscription(self) -> frozenset[str]:
        return self._topics or frozenset(self._counts)

    # ---- reading

    async def poll(self, timeout_s: float, *, records_max: int | None = None) -> Records:
        """The next records, by partition; empty if none came in time. Also keeps the group going."""
        count_max = self.config.records_max if records_max is None else records_max
        deadline = self._loop.time() + timeout_s
        while True:
            self._arrived.clear()
            self._check()
            self._commit_if_due()
            if self._prepare():
                records = self._fetcher.drain(count_max)
                if self._opening is not None and self._opening.letters:
                    await self._bury(self._opening.letters, records)
                self._fetcher.start()
                if records:
                    return records
            if self._loop.time() >= deadline:
                await asyncio.sleep(0)  # the work goes on even if nobody ever waits
                return {}
            try:
                async with asyncio.timeout_at(min(deadline, self._fetcher.next_attempt(), self._look_at)):
                    await self._arrived.wait()
            except TimeoutError:
                continue

    async def _bury(self, letters: Letters, records: Records) -> None:
        """Write the dead letters of what was refused; until they are safe, no commit passes them."""
        firsts = {target: batch[0].offset for target, batch in records.items()}
        for target, first in letters.firsts().items():
            firsts[target] = min(first, firsts.get(target, first))
        held = self._fetcher.hold(firsts)
        await letters.write()
        self._fetcher.release(held)

    @property
    def read_counts(self) -> ReadCounts | None:
        """What was decrypted and refused; None without encryption."""
        return None if self._opening is None else self._opening.counts

    def _check(self) -> None:
        if self._closed:
            raise ClientClosed("the consumer is closed")
        if self._membership is not None:
            self._membership.polled()
            if self._membership.failure is not None:
                raise self._membership.failure
        failure, self._fetcher.failure = self._fetcher.failure, None
        # The partitions of a deleted topic are taken from us when the group shares out anew.
        if failure is not None and not (isinstance(failure, UnknownTopic) and self._subscribed):
            raise failure

    def _prepare(self) -> bool:
        """Whether there is an assignment with positions; if not, somebody is working on it."""
        task = self._preparing
        if task is not None and task.done():
            self._preparing = None
            task.result()
        elif task is not None:
            return False
        if not self._unprepared():
            return True
        self._preparing = self._loop.create_task(self._get_ready(), name="preparing")
        self._preparing.add_done_callback(lambda _task: self._arrived.set())
        return False

    def _unprepared(self) -> bool:
        member = self._membership
        if self._subscribed and member is not None and member.rejoin_needed:
            return True
        return self._loop.time() >= self._look_at or any(
            each.position is None for each in self._readings.values()
        )

    async def _get_ready(self) -> None:
        if self._subscribed:
            await self._look_around()
            await self._take_part()
        await self._find_positions()

    # ---- positions

    @property
    def _readings(self) -> Mapping[TopicPartition, Reading]:
        return self._fetcher.readings

    async def _find_positions(self) -> None:
        """Give every partition without a position one: committed, or as `reset` says."""
        lacking = {target: each for target, each in self._readings.items() if each.position is None}
        # One that was out of range does not go back to the committed offset: that may be the same.
        fresh = [target for target, each in lacking.items() if each.out_of_range is None]
        found: dict[TopicPartition, int] = {}
        if self._membership is not None and fresh:
            found = await self._stable_positions(self._membership.config.group, fresh)
        missing = [target for target in lacking if target not in found]
        if missing:
            found |= await self._reset_positions(missing)
        for target, reading in lacking.items():
            if reading.position is None and target in found:
                reading.seek(found[target])

    async def _stable_positions(
        self, group: str, targets: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The committed offsets, once no open transaction may move them any more (KIP-447).

        To go on from an older one would be to read again what the transaction has processed. A transaction
        ends by its timeout at the latest.
        """
        while True:
            try:
                committed = await self._client.committed(group, targets, require_stable=True)
            except TimedOut as error:
                cause = error.__cause__
                if not isinstance(cause, BrokerError) or cause.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise
                _log.warning("waiting for a transaction to end: group=%s %s", group, cause)
            else:
                return {target: each.offset for target, each in committed.items()}

    async def _reset_positions(self, targets: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if self.config.reset == "none":
            listed = ", ".join(map(str, targets))
            raise NoOffset(
                f"no valid committed offset for {listed}, and auto.offset.reset is none."
                " Set it to earliest or latest, or seek"
            )
        return await self._ends(targets, EARLIEST if self.config.reset == "earliest" else LATEST)

    async def _ends(self, targets: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        found = await self._client.list_offsets(
            dict.fromkeys(targets, time_ms), read_committed=self.config.fetch.read_committed
        )
        return {target: each.offset for target, each in found.items()}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from an offset."""
        self._reading(partition).seek(offset)
        self._arrived.set()

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Read from the first record that is left, of some partitions or of all."""
        await self._seek_to(partitions, EARLIEST)

    async def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Read what comes from now on, of some partitions or of all."""
        await self._seek_to(partitions, LATEST)

    async def _seek_to(self, partitions: Iterable[TopicPartition], time_ms: int) -> None:
        found = await self._ends(list(partitions) or list(self._readings), time_ms)
        for target, offset in found.items():
            self.seek(target, offset)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that poll will return."""
        reading = self._reading(partition)
        if reading.position is None:
            await self._find_positions()
        assert reading.position is not None
        return reading.position

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The partition's end as the last fetch saw it; None before the first one."""
        return self._reading(partition).high_watermark

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return nothing from these partitions until they are resumed; they stay assigned."""
        for each in partitions:
            self._reading(each).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Read from these partitions again."""
        for each in partitions:
            self._reading(each).paused = False
        self._arrived.set()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(target for target, reading in self._readings.items() if reading.paused)

    def _reading(self, partition: TopicPartition) -> Reading:
        reading = self._readings.get(partition)
        if reading is None:
            raise ClientError(f"{partition} is not assigned to this consumer")
        return reading

    # ---- committing

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these offsets, or the positions of everything that poll has returned."""
        member = self._membership
        if member is None:
            raise ClientError("committing needs a group: set group.id")
        positions = self._positions() if offsets is None else dict(offsets)
        try:
            await self._client.commit(
                member.config.group,
                positions,
                generation=member.generation,
                member_id=member.member_id,
                instance_id=member.config.instance_id,
            )
        except BrokerError as error:
            if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                member.lost()
            elif error.code == ErrorCode.REBALANCE_IN_PROGRESS:
                member.rejoin_needed = True
            raise

    @property
    def group_metadata(self) -> GroupMetadata:
        """What `Producer.send_offsets_to_transaction` needs to know of this member of the group."""
        member = self._membership
        if member is None:
            raise ClientError("committing needs a group: set group.id")
        if not self._subscribed:  # partitions that were assigned by hand belong to no generation
            return GroupMetadata(member.config.group, instance_id=member.config.instance_id)
        return member.joined

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's committed offsets; partitions without one are left out."""
        if self._membership is None:
            raise ClientError("committed offsets belong to a group: set group.id")
        found = await self._client.committed(self._membership.config.group, list(partitions))
        return {target: each.offset for target, each in found.items()}

    def _positions(self) -> dict[TopicPartition, int]:
        return {
            target: reading.position
            for target, reading in self._readings.items()
            if reading.position is not None
        }

    def _commit_if_due(self) -> None:
        now = self._loop.time()
        if not self._commits_by_itself or now < self._commit_at:
            return
        self._commit_at = now + self.config.auto_commit_interval_s
        if self._committing is None or self._committing.done():
            self._committing = self._loop.create_task(self._commit_quietly(), name="auto commit")

    @property
    def _commits_by_itself(self) -> bool:
        return self.config.auto_commit and self._membership is not None

    async def _commit_quietly(self) -> None:
        """A commit that nobody asked for: if it fails, the next one will do, or the records come again."""
        member = self._membership
        if member is None or (self._subscribed and member.generation < 0):
            return
        try:
            async with asyncio.timeout(member.config.session_timeout_s):
                await self.commit()
        except (BrokerError, ClientError, ProtocolError, TimeoutError):
            return

    # ---- the group

    @property
    def _subscribed(self) -> bool:
        return self._topics is not None or self._pattern is not None

    async def _take_part(self) -> None:
        """Be a member with an assignment."""
        member = self._membership
        assert member is not None
        while member.rejoin_needed:
            await self._give_back()
            partitions = sorted(await member.join(await self._wanted_topics()))
            self._fetcher.replace(partitions)
            await _call(self._on_assigned, partitions)

    async def _give_back(self) -> None:
        """Commit and let go of everything before joining again (the eager protocol)."""
        if not self._readings:
            return
        if self._commits_by_itself:
            await self._commit_quietly()
        gone = sorted(self._readings)
        # The listener may still commit what it has worked on, so the positions go after it.
        await _call(self._on_revoked, gone)
        self._fetcher.replace(())

    async def _wanted_topics(self) -> list[str]:
        """The subscribed topics, and how many partitions they have now."""
        self._looked_at = self._loop.time()
        if self._pattern is None:
            wanted = sorted(self._topics or ())
            found = await self._client.metadata(wanted, create=self.config.create_topics)
        else:
            pattern = self._pattern
            known = await self._client.metadata()
            found = {name: info for name, info in known.items() if pattern.match(name) and not info.internal}
            wanted = sorted(found)
        self._counts = {name: len(info.partitions) for name, info in found.items()}
        return wanted

    @property
    def _look_at(self) -> float:
        """When to see again whether subscribed topics came, went or grew."""
        if not self._subscribed:
            return float("inf")
        missing = any(not self._counts.get(topic) for topic in self._topics or ())
        seconds = self.config.metadata_age_max_s
        return self._looked_at + (min(seconds, _MISSING_TOPIC_S) if missing else seconds)

    async def _look_around(self) -> None:
        if self._loop.time() < self._look_at or self._membership is None:
            return
        before = self._counts
        await self._wanted_topics()
        if self._counts != before:
            self._membership.rejoin_needed = True

    # ---- the end

    async def close(self) -> None:
        """Commit if that is automatic, leave the group, and stop fetching."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._stop_preparing()
            if self._membership is not None:
                if self._commits_by_itself and self._readings:
                    await self._commit_quietly()
                await self._membership.leave()
        finally:
            await _cancel(self._committing)
            await self._fetcher.close()
            if self._opening is not None:
                await self._opening.letters.close()

    async def _stop_preparing(self) -> None:
        task, self._preparing = self._preparing, None
        await _cancel(task)


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _call(listener: Listener | None, partitions: Sequence[TopicPartition]) -> None:
    if listener is not None:
        result = listener(partitions)
        if result is not None:
            await result
