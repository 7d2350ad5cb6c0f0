"""A history: lives of one broker, transactional producers in each, and how each life ends."""

from __future__ import annotations

import asyncio
import collections
import random
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from tailrace.broker.transactions import TransactionRefused
from tailrace.cluster import MemoryStore
from tailrace.model import BrokerError, StorageError, TopicPartition
from tailrace.testing.simulation import Crash, SimulatedDisk, SimulatedLoop
from tailrace.testing.transfers.node import PLACES, SimulatedNode
from tailrace.testing.transfers.oracle import Oracle, Wrong
from tailrace.testing.transfers.producer import Producer

_TIMEOUTS_MS = (400, 60_000, 60_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What kind of history."""

    lives: int | None = None  # None: the seed decides
    transactions: int = 4  # of each producer, in each life
    tidies: bool = True  # checkpoints and compaction go on meanwhile


@dataclass(frozen=True, slots=True)
class Failed:
    """A history that went wrong: its seed plays it again."""

    seed: int
    error: str
    trace: list[str]


class History:
    """One seed."""

    def __init__(self, seed: int, options: Options) -> None:
        self.seed = seed
        self.options = options
        self.rng = rng = random.Random(seed)
        self.trace: collections.deque[str] = collections.deque(maxlen=400)
        self.disk = SimulatedDisk(rng, log=self.trace.append)
        self.store = MemoryStore()
        self.oracle = Oracle()
        self.counts: collections.Counter[str] = collections.Counter()
        self.loop: SimulatedLoop | None = None
        self._crash_within = 0  # disk calls, counted from the end of the recovery
        self._zombies: list[Producer] = []
        self.producers = [self._producer(number) for number in range(rng.choice([1, 2, 3]))]
        self.positions = {each.name: each.position for each in self.producers}

    def play(self) -> None:
        """Live and die as often as the seed says; then end what is open, and recover once more."""
        rng, disk = self.rng, self.disk
        self.begin()
        for _ in range(self.options.lives or rng.choice([1, 2, 3, 4])):
            self._crash_within = rng.choice([20, 60, 200, 500])
            disk.crash_at = disk.calls + rng.randrange(1, 300) if rng.random() < 0.2 else 0
            self.live(self._serve())
            self.die()
            for producer in self.producers:
                if producer.attempt is not None and rng.random() < 0.4:
                    self._zombies.append(producer.is_replaced())
        self.finish()
        self.counts["histories"] += 1
        self.counts["calls"] += disk.calls
        self.counts["transactions"] += len(self.oracle.attempts)
        self.counts.update(each.fate.name.lower() for each in self.oracle.attempts)

    def begin(self) -> None:
        """One life in which nothing goes wrong makes the topics."""
        self.live(self._settle())
        self.disk.kill()

    def finish(self) -> None:
        """End what is open and compare, twice with a kill between the two."""
        self.disk.crash_at = 0
        for _ in range(2):
            self.live(self._settle())
            self.disk.kill()

    def live(self, work: Coroutine[Any, Any, None]) -> None:
        """Run one life of the broker to its crash."""
        self.loop = SimulatedLoop(started_s=self.loop.time() if self.loop is not None else 0.0)
        try:
            self.loop.run(work)
        except Crash:
            pass
        finally:
            self.loop.abandon()

    def die(self) -> None:
        if self.rng.random() < 0.35:
            self.counts["kills"] += 1
            self.disk.kill()
        else:
            self.counts["power cuts"] += 1
            self.disk.power_cut()

    def node(self) -> SimulatedNode:
        assert self.loop is not None
        return SimulatedNode(self.disk, self.loop, self.store, self.rng)

    # ---- lives

    async def _serve(self) -> None:
        node = self.node()
        await node.start()
        await node.check(self.oracle, self.positions)
        if not self.disk.crash_at:
            self.disk.crash_at = self.disk.calls + self.rng.randrange(1, self._crash_within)
        works = [self._start(self._produce(node, each)) for each in self.producers]
        works += [self._start(self._haunt(node, zombie)) for zombie in self._zombies]
        self._zombies = []
        asides = [self._start(self._look(node))]
        if self.options.tidies:
            asides.append(self._start(self._tidy(node)))
        await asyncio.wait(works)
        for task in asides:
            task.cancel()
        await node.check(self.oracle, self.positions)
        self.counts["lives to their end"] += 1
        raise Crash("the work is done")

    async def _settle(self) -> None:
        node = self.node()
        await node.start()
        await node.check(self.oracle, self.positions)
        for producer in self.producers:
            producer.disconnect()
            try:
                await producer.init(node.access)
            except TransactionRefused as refused:
                raise Wrong(f"{producer.name} cannot be taken over: {refused}") from refused
        node.check_all_ended(self.positions)
        await node.check(self.oracle, self.positions)
        raise Crash("everything is told")

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Work that goes wrong ends the life there and then."""
        task = asyncio.ensure_future(work)

        def ended(task: asyncio.Task[None]) -> None:
            assert self.loop is not None
            if not task.cancelled() and (error := task.exception()) is not None:
                self.loop.halt(error)

        task.add_done_callback(ended)
        return task

    async def _produce(self, node: SimulatedNode, producer: Producer) -> None:
        await producer.work(node.access, transactions=self.options.transactions)

    async def _haunt(self, node: SimulatedNode, zombie: Producer) -> None:
        for _ in range(3):
            await asyncio.sleep(self.rng.choice([0.0, 0.005, 0.05]))
            await zombie.haunt(node.access())

    async def _look(self, node: SimulatedNode) -> None:
        """A reader in the middle of everything."""
        while True:
            await asyncio.sleep(self.rng.choice([0.001, 0.005, 0.02]))
            await node.check(self.oracle, self.positions)
            self.counts["looks"] += 1

    async def _tidy(self, node: SimulatedNode) -> None:
        while True:
            await asyncio.sleep(self.rng.choice([0.002, 0.02, 0.2]))
            try:
                await node.storage.checkpoint()
                if self.rng.random() < 0.5:
                    await node.storage.compact()
            except (BrokerError, StorageError) as error:
                raise Wrong(f"tidying failed: {error}") from error

    def _producer(self, number: int) -> Producer:
        return Producer(
            name=f"id-{number}",
            client_version=self.rng.choice([0, 2]),
            places=self.rng.sample(PLACES, self.rng.randint(1, len(PLACES))),
            position=TopicPartition("plain", number),
            oracle=self.oracle,
            rng=self.rng,
            timeout_ms=self.rng.choice(_TIMEOUTS_MS),
        )


def play(seed: int, options: Options | None = None) -> tuple[History, Failed | None]:
    """Play one history; what went wrong, if anything did."""
    history = History(seed, options or Options())
    return history, attempt(history, history.play)


def attempt(history: History, part: Any) -> Failed | None:
    """What went wrong in a part of a history, if anything did."""
    try:
        part()
    except Wrong as wrong:
        return Failed(history.seed, f"Wrong: {wrong}", list(history.trace))
    except Exception:
        return Failed(history.seed, traceback.format_exc(), list(history.trace))
    return None
