"""Tails of all kinds under random events, against plain arithmetic: what was not shown was counted, once.

The test holds the turns of the ring, so that every order of publishing, turns, reading, pauses, new
partitions and deleted records can come about, also while a tail waits for the log. After every record that a
tail shows, and at the end:

    records shown + records skipped = records between where the tail began and where it is

One that looks for something passes over others without a word: for it that is the least and the most.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from tests.unit.http.live.rig import Rig, play

from tailrace.broker import Partition, Topic
from tailrace.http import HttpConfig
from tailrace.http.live.entry import Entry, Filter, read_event_id
from tailrace.http.live.history import History
from tailrace.http.live.ring import Ring
from tailrace.http.live.sse import write_events
from tailrace.http.live.start import TailQuery, plan_start
from tailrace.http.live.tail import Tail

SEEDS = 5  # of one test
STEPS = 120
PARTITIONS_MAX = 4
TAILS_MAX = 5
BURST = 700  # more than a ring follows
NEEDLE, HAY = b"needle", b"hay"
NEEDLE_EVERY = 3  # by offset


@dataclass
class Watch:
    """A tail, and what its client knows."""

    tail: Tail
    filter: Filter
    begin: dict[int, int]  # by partition; everything of others is new
    next: dict[int, int] = field(default_factory=dict)  # the least offset that may be shown
    is_paused: bool = False
    told: int = 0  # records that were shown or skipped
    skipped: int = 0
    last_id: str = ""

    def wants(self, partition: int) -> bool:
        return self.filter.partition in (None, partition)

    def check_told(self, ends: dict[int, int]) -> None:
        """What it told is all that lies between where it began and these offsets, less what it hides."""
        passed = needles = 0
        for each, end in ends.items():
            if self.wants(each):
                begin = self.begin.get(each, 0)
                passed += end - begin
                needles += -(-end // NEEDLE_EVERY) - -(-begin // NEEDLE_EVERY)
        least = needles if self.filter.text else passed
        assert least <= self.told <= passed

    async def read(self, timeout_s: float = 0) -> bool:
        """Take a portion, as a client does by SSE; whether there was one."""
        portion = await self.tail.wait_portion(timeout_s)
        if portion is None:
            return False
        for block in write_events(portion, mark=self.tail.mark.encode()).decode().split("\n\n")[:-1]:
            self.take(dict(line.split(": ", 1) for line in block.split("\n")))
        return True

    def take(self, event: dict[str, str]) -> None:
        data = json.loads(event["data"])
        if event["event"] == "skipped":
            assert data["count"] > 0
            self.told += data["count"]
            self.skipped += data["count"]
            return
        partition, offset = data["partition"], data["offset"]
        assert self.wants(partition)
        assert not self.filter.text or offset % NEEDLE_EVERY == 0
        assert offset >= self.next.get(partition, self.begin.get(partition, 0)), "shown twice, or too early"
        self.next[partition] = offset + 1
        self.told += 1
        self.last_id = event["id"]
        self.check_told({each: at + 1 for each, at in read_event_id(self.last_id).shown.items()})


class World:
    """One topic, its ring, and everybody who watches."""

    def __init__(self, rig: Rig, topic: Topic, random: Random) -> None:
        self.rig = rig
        self.topic = topic
        self.random = random
        self.watches: list[Watch] = []
        self.is_trimmed = False
        self.disturbs = True  # whoever reads the log

    @property
    def ends(self) -> dict[int, int]:
        return {each.index: each.high_watermark for each in self.topic.partitions}

    @property
    def ring(self) -> Ring | None:
        return next(iter(self.rig.tails.rings), None)

    async def step(self) -> None:
        await self.do_one_of(
            {self.publish: 30, self.turn: 20, self.read: 30, self.open: 8, self.pause: 8, self.close: 2}
            | {self.grow: 2, self.trim: 2, self.limit: 2}
        )

    async def disturb(self) -> None:
        """What may happen while a tail waits for the log."""
        await self.do_one_of({self.publish: 4, self.turn: 4, self.grow: 1, self.trim: 1, self.limit: 1})

    async def do_one_of(self, weights: Mapping[Callable[[], Coroutine[Any, Any, None]], int]) -> None:
        (event,) = self.random.choices(list(weights), list(weights.values()))
        await event()

    async def publish(self) -> None:
        partition = self.random.choice(self.topic.partitions)
        begin = partition.end_offset
        count = BURST if self.random.random() < 0.05 else self.random.randint(1, 40)
        values = [HAY if offset % NEEDLE_EVERY else NEEDLE for offset in range(begin, begin + count)]
        self.rig.publish(*values, partition=partition.index, topic=self.topic.name)
        await partition.wait_acknowledged(partition.end_offset)

    async def turn(self) -> None:
        if self.ring is not None:
            self.ring.turn()

    async def read(self) -> None:
        if self.watches:
            await self.read_one(self.random.choice(self.watches))

    async def read_one(self, watch: Watch) -> bool:
        wants_all, before = watch.tail._wants_all, watch.skipped
        had_one = await watch.read()
        assert watch.skipped == before or self.is_trimmed or not wants_all, "the log has what was skipped"
        return had_one

    async def open(self) -> None:
        if len(self.watches) == TAILS_MAX:
            return
        filter = Filter(
            partition=self.random.choice([None, None, 0]), text=self.random.choice([None, None, NEEDLE])
        )
        offset = self.random.choice(["latest", "earliest", "-7"])
        ids = [each.last_id for each in self.watches if each.last_id and each.filter == filter]
        last_id = self.random.choice([None, *ids])
        query = TailQuery(partition=filter.partition, offset=offset)
        positions = await plan_start(self.topic, query, last_event_id=last_id, now_ms=0, records_max=100)
        tail = self.rig.watch(self.topic.name, filter=filter, positions=positions)
        self.watches.append(Watch(tail, filter, dict(self.ends if positions is None else positions)))

    async def pause(self) -> None:
        if not self.watches:
            return
        watch = self.random.choice(self.watches)
        watch.is_paused = not watch.is_paused
        if watch.is_paused:
            watch.tail.pause(True)
            return
        if watch.tail._is_live:
            watch.next = self.ends
        reading = asyncio.ensure_future(watch.read(60))
        await asyncio.sleep(0)
        watch.tail.pause(False)
        await reading

    async def close(self) -> None:
        if self.watches:
            self.watches.pop(self.random.randrange(len(self.watches))).tail.close()

    async def grow(self) -> None:
        if len(self.topic.partitions) < PARTITIONS_MAX:
            await self.rig.broker.topics.add_partitions(self.topic.name, len(self.topic.partitions) + 1)

    async def trim(self) -> None:
        partition = self.random.choice(self.topic.partitions)
        await partition.delete_records(self.random.randint(partition.start_offset, partition.high_watermark))
        self.is_trimmed = True

    async def limit(self) -> None:
        if self.ring is not None:
            self.ring.limit(self.random.randint(1, 40_000))

    async def finish(self) -> None:
        """Let everybody come to the end, and count."""
        ends = self.ends
        for watch in self.watches:
            watch.tail.pause(False)
        is_done = False
        while not is_done:
            has_more = self.ring is not None and self.ring.turn()
            had_one = [await self.read_one(watch) for watch in self.watches]
            in_log = [watch for watch in self.watches if watch.tail._history is not None]
            is_done = not has_more and not any(had_one) and not in_log
        for watch in self.watches:
            watch.check_told(ends)
            watch.tail.close()


@pytest.mark.parametrize("group", range(4))
def test_what_a_tail_does_not_show_it_counts_and_never_twice(
    group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        rig.tails._schedule = lambda ring: None  # type: ignore[method-assign]  # turns are the test's
        for seed in range(group * SEEDS, group * SEEDS + SEEDS):
            await play_world(rig, seed, monkeypatch)

    play(scenario, HttpConfig(ring_records_max=100, stream_buffer_bytes_max=20_000))


async def play_world(rig: Rig, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    name = f"seed-{seed}"
    await rig.create(random.randint(1, 3), name=name)
    topic = rig.broker.topics.get(name)
    assert topic is not None
    world = World(rig, topic, random)
    read = History._read

    async def read_disturbed(history: History, partition: Partition, bytes_max: int) -> list[Entry]:
        if world.disturbs:
            await world.disturb()
        found = await read(history, partition, bytes_max)
        if world.disturbs:
            await world.disturb()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(History, "_read", read_disturbed)
        for _ in range(STEPS):
            await world.step()
        world.disturbs = False
        await world.finish()
