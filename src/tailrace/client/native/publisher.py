"""Publishing: a lane per partition, one bound over all of them, and one future per message.

A message is put into its lane; lanes that got some are emptied once per turn of the event loop, so that all
messages of a turn that go to one partition leave as one frame. What is not answered is bounded in messages
and bytes: beyond it `publish` waits. What is not answered within `timeout_s` is given up, connected or not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count

from tailrace.client.error import TimedOut
from tailrace.client.native.connection import Connection
from tailrace.client.native.error import too_large
from tailrace.client.native.flight import Flight, message_bytes
from tailrace.client.native.lane import Lane, plan_recovery
from tailrace.client.native.link import Link
from tailrace.client.native.published import Published
from tailrace.model import BrokerError, TailraceError
from tailrace.runtime.tasks import Supervisor, wait_at_most
from tailrace.wire.native import FRAME_BYTES_MAX

_CHECK_S = 1.0  # how often what waits is looked through for what has waited for too long
_RECOVERIES_MAX = 8  # with a new producer each, in a row, before the broker's refusal is believed
_RETRY_DELAY_S_MIN = 0.02
_RETRY_DELAY_S_MAX = 1.0
_FRAME_BYTES_SPARE = 4_096  # what a frame needs beside its messages


class Publisher:
    """Sends messages so that each is stored once, in order per partition."""

    def __init__(self, link: Link, *, messages_max: int, bytes_max: int, timeout_s: float) -> None:
        self._link = link
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._connection: Connection | None = None
        self._message_bytes_max = FRAME_BYTES_MAX
        self._error: TailraceError | None = None  # why nothing can be published any more
        self._messages = 0  # unanswered
        self._bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()  # publishers, for room
        self._drained = asyncio.Event()
        self._drained.set()
        self._dirty: list[Lane] = []
        self._check_timer: asyncio.TimerHandle | None = None
        self._tasks = Supervisor(self._task_failed)

    @property
    def unanswered(self) -> int:
        """Messages that were put and are not known to be stored."""
        return self._messages

    async def publish(self, topic: str, partition: int, properties: bytes, body: bytes) -> Published:
        """Send a message and wait until the broker has it safe."""
        size = message_bytes(properties, body)
        if self._messages >= self._messages_max or self._bytes + size > self._bytes_max:
            await self._wait_room(size)
        if self._error is not None:
            raise self._error
        if size > self._message_bytes_max:
            raise too_large(size, limit=self._message_bytes_max)
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._new_lane(topic, partition)
        future: asyncio.Future[Published] = self._loop.create_future()
        if not self._messages:
            self._begin()
        self._messages += 1
        self._bytes += size
        if lane.open is None:
            self._mark(lane)
        lane.put(properties, body, future, size, self._loop.time())
        return await future

    async def drain(self, timeout_s: float) -> bool:
        """Wait until everything is answered, for so long at most; whether it is."""
        return await wait_at_most(self._drained, timeout_s)

    async def close(self) -> None:
        """Stop what still works on the lanes."""
        if self._check_timer is not None:
            self._check_timer.cancel()
        await self._tasks.stop()

    def _new_lane(self, topic: str, partition: int) -> Lane:
        lane = Lane(self, topic=topic, partition=partition, producer_id=self._link.producer_id)
        lane.connection = self._connection
        self._lanes[topic, partition] = lane
        return lane

    # ---- room

    async def _wait_room(self, size: int) -> None:
        while self._error is None and self._messages and not self._has_room(size):
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():
                    self._wake(1)  # it was told that there is room, and somebody else can use it
                raise

    def _has_room(self, size: int) -> bool:
        return self._messages < self._messages_max and self._bytes + size <= self._bytes_max

    def _wake(self, number: int) -> None:
        while number and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                number -= 1

    def released(self, messages: int, size: int) -> None:
        """So much less is unanswered."""
        self._messages -= messages
        self._bytes -= size
        if self._waiting:
            self._wake(max(messages, 1))
        if not self._messages:
            self._drained.set()

    # ---- out, once per turn

    def _begin(self) -> None:
        """The first message after a rest."""
        self._drained.clear()
        if self._check_timer is None:
            self._check_timer = self._loop.call_later(_CHECK_S, self._check)

    def _mark(self, lane: Lane) -> None:
        if not self._dirty:
            self._loop.call_soon(self._send_dirty)
        self._dirty.append(lane)

    def _send_dirty(self) -> None:
        dirty, self._dirty = self._dirty, []
        for lane in dirty:
            lane.send()

    def writable(self) -> None:
        """The socket takes more again."""
        for lane in self._lanes.values():
            lane.send()

    # ---- what did not go well

    def recover(self, lane: Lane) -> None:
        """Decide what becomes of what the broker refused, and go on with the lane."""
        failed = lane.take_failed()
        if not failed:  # what was refused has been given up meanwhile
            self._go_on(lane)
            return
        plan = plan_recovery(failed)
        first_error = failed[0].failure
        assert first_error is not None
        for flight in plan.refused:
            assert flight.failure is not None
            self._give_up(flight, flight.failure)
        lane.recoveries += 1
        if plan.renumber and not plan.refused and lane.recoveries > _RECOVERIES_MAX:
            for flight in plan.again:
                self._give_up(flight, first_error)
        else:
            lane.put_back(plan.again, renumber=plan.renumber)
        lane.is_recovering = True
        if plan.renumber:
            self._tasks.start("tailrace-new-producer", self._renumber(lane))
        else:
            delay_s = min(_RETRY_DELAY_S_MIN * 2**lane.recoveries, _RETRY_DELAY_S_MAX)
            self._loop.call_later(delay_s, self._go_on, lane)

    async def _renumber(self, lane: Lane) -> None:
        for attempt in count():
            try:
                producer_id = await self._link.new_producer_id()
                break
            except (TimedOut, BrokerError):
                await asyncio.sleep(min(_RETRY_DELAY_S_MIN * 2 ** min(attempt, 10), _RETRY_DELAY_S_MAX))
        lane.number(producer_id)
        self._go_on(lane)

    def _go_on(self, lane: Lane) -> None:
        lane.is_recovering = lane.is_stalled = False
        lane.send()

    def _check(self) -> None:
        """Give up what has waited for too long."""
        self._check_timer = None
        if not self._messages:
            return
        self._check_timer = self._loop.call_later(min(_CHECK_S, self._timeout_s / 4), self._check)
        created_before_s = self._loop.time() - self._timeout_s
        for lane in self._lanes.values():
            for flight in lane.expire(created_before_s=created_before_s):
                self._give_up(
                    flight,
                    TimedOut(
                        f"{self._link.address} did not confirm a message to {lane} within"
                        f" {self._timeout_s:g} s. Whether it was stored is not known"
                    ),
                )
            lane.advance()

    def _give_up(self, flight: Flight, error: TailraceError) -> None:
        flight.fail(error)
        self.released(len(flight.futures), flight.bytes)

    def _fail_lane(self, lane: Lane, error: TailraceError) -> None:
        for flight in lane.fail(error):
            self.released(len(flight.futures), flight.bytes)

    def _task_failed(self, error: BaseException) -> None:
        # Only the end of the link ends a renumbering, and then everybody was told.
        if not isinstance(error, TailraceError):
            raise error

    # ---- what the link tells

    def connected(self, connection: Connection) -> None:
        self._error = None
        self._connection = connection
        self._message_bytes_max = connection.frame_bytes_max - _FRAME_BYTES_SPARE
        for lane in self._lanes.values():
            lane.connection = connection
            lane.send()

    def disconnected(self) -> None:
        self._connection = None
        for lane in self._lanes.values():
            lane.disconnected()

    def ended(self, error: TailraceError) -> None:
        self._error = error
        self._connection = None
        for lane in self._lanes.values():
            self._fail_lane(lane, error)
        self._wake(len(self._waiting))
