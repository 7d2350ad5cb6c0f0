"""Random commits, transactions, removals and crashes: what is seen follows from the durable part of the log.

The model is one sentence: of all records of a group and a partition that are durable, tombstones included and
those of transactions without a durable commit marker left out, the last one in the log counts. It is computed
from the bytes of the log, over and over again, and knows nothing of pending maps.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.unit.broker.groups.coordinating import Scene, play, settle, start
from tests.unit.broker.groups.offsets_log import MemoryOffsetsLog

from tailrace.broker.groups import NO_OFFSET, UNSTABLE, CommitRequest, OffsetToCommit
from tailrace.broker.groups.offsets import OffsetKey, read_key, read_offset
from tailrace.model import ErrorCode, TopicPartition
from tailrace.records import read_batch, read_marker

GROUPS = ("a", "b")
PARTITIONS = tuple(TopicPartition("t", index) for index in range(3))
PRODUCERS = (11, 12, 13)
STEPS = 80


class Entry(NamedTuple):
    """A record of a position, a tombstone (no value), or a marker (no key)."""

    key: OffsetKey | None
    value: int | None
    producer: int | None  # of a transaction
    commits: bool = False


def entries(batches: list[bytes]) -> Iterator[Entry]:
    for raw in batches:
        batch = read_batch(raw)
        if batch.is_control:
            yield Entry(None, None, batch.producer_id, read_marker(batch).commit)
            continue
        producer = batch.producer_id if batch.is_transactional else None
        for record in batch.records():
            key = read_key(record.key or b"")
            if isinstance(key, OffsetKey):
                value = None if record.value is None else read_offset(record.value).offset
                yield Entry(key, value, producer)


def visible(log: list[Entry]) -> dict[OffsetKey, int]:
    """What the durable part of a log says."""
    found: dict[OffsetKey, int] = {}
    for at, entry in enumerate(log):
        if entry.key is None:
            continue
        if entry.producer is not None:
            marker = _marker_after(log, at, entry.producer)
            if marker is None or not marker.commits:
                continue
        if entry.value is None:
            found.pop(entry.key, None)
        else:
            found[entry.key] = entry.value
    return found


def undecided(log: list[Entry], durable: list[Entry]) -> set[OffsetKey]:
    """Records of transactions that neither a durable marker nor a durable tombstone follows."""
    found = set()
    for at, entry in enumerate(log):
        if entry.key is None or entry.producer is None:
            continue
        removed = any(later.key == entry.key and later.value is None for later in durable[at + 1 :])
        if not removed and _marker_after(durable, at, entry.producer) is None:
            found.add(entry.key)
    return found


def _marker_after(log: list[Entry], at: int, producer: int) -> Entry | None:
    return next((each for each in log[at + 1 :] if each.key is None and each.producer == producer), None)


class Play:
    """A scene, dice, and what was promised so far."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.dice = random.Random(seed)
        self.next_value = 0
        self.durable = 0  # batches
        self.is_held = False
        self.working: set[asyncio.Task[object]] = set()
        self.decided = 0

    @property
    def batches(self) -> list[bytes]:
        return self.scene.log.batches.setdefault(0, [])

    def go(self) -> None:
        act = self.dice.choices(
            [self.commit, self.commit_transactional, self.end, self.delete_offsets, self.delete_group],
            weights=[4, 8, 5, 2, 1],
        )[0]
        act()

    def commit(self) -> None:
        self._work(self.scene.groups.commit_offsets(self._request()))

    def commit_transactional(self) -> None:
        producer = self.dice.choice(PRODUCERS)
        committing = self.scene.groups.commit_transactional(
            self._request(), producer_id=producer, producer_epoch=0
        )
        self._work(committing)

    def end(self) -> None:
        producer, commits = self.dice.choice(PRODUCERS), self.dice.random() < 0.6
        self.scene.log.mark(0, producer, commit=commits)
        self.scene.groups.transaction_ended(0, producer, commit=commits)

    def delete_offsets(self) -> None:
        group = self.dice.choice(GROUPS)
        if group in {listed.group_id for listed in self.scene.groups.list_groups()}:
            self._work(self._delete_offsets(group, self._some()))

    async def _delete_offsets(self, group: str, partitions: list[TopicPartition]) -> object:
        try:
            return await self.scene.groups.delete_offsets(group, partitions)
        except Exception as error:  # gone meanwhile, or on its way out
            return error

    def delete_group(self) -> None:
        self._work(self.scene.groups.delete([self.dice.choice(GROUPS)]))

    async def hold(self) -> None:
        await settle()
        self.durable = len(self.batches)
        self.is_held = True
        self.scene.log.hold_appends()

    async def release(self) -> None:
        self.is_held = False
        self.scene.log.release_appends()
        await settle()

    async def crash(self) -> None:
        """What is not durable may be lost, from some batch on."""
        await settle()
        durable = self.durable if self.is_held else len(self.batches)
        kept = self.dice.randint(durable, len(self.batches))
        survivors = self.batches[:kept]
        self.is_held = False
        self.scene.log.fail_appends(RuntimeError("the node is gone"))
        self.scene.log.release_appends()
        for task in self.working:
            task.cancel()
        await asyncio.gather(*self.working, return_exceptions=True)
        self.working.clear()
        self.scene.failures.clear()
        self.scene.log.batches[0] = survivors
        await self.scene.restart()

    async def check(self) -> None:
        await settle()
        if not self.is_held:
            self.durable = len(self.batches)
        log, durable = list(entries(self.batches)), list(entries(self.batches[: self.durable]))
        seen, unstable = visible(durable), undecided(log, durable)
        self.decided += len(seen)
        for group in GROUPS:
            if group in self._leaving():
                continue
            loose = self.scene.groups.fetch_offsets(group, PARTITIONS)
            strict = self.scene.groups.fetch_offsets(group, PARTITIONS, require_stable=True)
            for partition in PARTITIONS:
                key = OffsetKey(group, partition)
                assert loose[partition].offset == seen.get(key, NO_OFFSET), key
                assert (strict[partition] == UNSTABLE) == (key in unstable), key

    def _leaving(self) -> set[str]:
        residents = self.scene.groups._directory.residents()
        return {resident.group.group_id for resident in residents if resident.is_leaving}

    def _request(self) -> CommitRequest:
        offsets = {}
        for partition in self._some():
            self.next_value += 1
            offsets[partition] = OffsetToCommit(self.next_value)
        return CommitRequest(group_id=self.dice.choice(GROUPS), offsets=offsets)

    def _some(self) -> list[TopicPartition]:
        return self.dice.sample(PARTITIONS, self.dice.randint(1, len(PARTITIONS)))

    def _work(self, work: object) -> None:
        task: asyncio.Task[object] = start(work)  # type: ignore[arg-type]
        self.working.add(task)
        task.add_done_callback(self.working.discard)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_seen_follows_from_the_durable_part_of_the_log(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        stage = Play(scene, seed)
        for _ in range(STEPS):
            for _ in range(stage.dice.randint(1, 4)):
                stage.go()
                if stage.dice.random() < 0.3:
                    await asyncio.sleep(0)
            chance = stage.dice.random()
            if chance < 0.08:
                await stage.crash()
            elif chance < 0.2:
                await (stage.release() if stage.is_held else stage.hold())
            await stage.check()
        await stage.release()
        await stage.check()
        assert stage.decided > 30, "hardly anything was ever committed: the dice are too dull"

    play(scenario, lambda: Scene(log=MemoryOffsetsLog(1)))


@pytest.mark.parametrize("seed", range(4))
def test_an_answered_commit_is_in_the_log_whatever_crashes(seed: int) -> None:
    async def scenario(scene: Scene) -> None:
        stage = Play(scene, seed)
        for step in range(60):
            request = CommitRequest(group_id="a", offsets={PARTITIONS[0]: OffsetToCommit(step)})
            answer = await scene.groups.commit_transactional(request, producer_id=11, producer_epoch=0)
            assert answer == {PARTITIONS[0]: ErrorCode.NONE}
            if stage.dice.random() < 0.3:
                await stage.crash()
            stage.durable = len(stage.batches)
            commits = stage.dice.random() < 0.5
            scene.log.mark(0, 11, commit=commits)
            scene.groups.transaction_ended(0, 11, commit=commits)
            await settle()
            assert (scene.fetched(PARTITIONS[0], group="a") == [step]) is commits

    play(scenario, lambda: Scene(log=MemoryOffsetsLog(1)))
