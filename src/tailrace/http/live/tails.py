"""All tails of a node, the rings that they read, and how much of the loop's time they take.

A tail shows a topic to the session that opened it. A ring is shared by the tails of all sessions, so it reads
its topic as work of the broker itself.

A ring lives as long as its topic has a tail. The rings take their turns one after the other, and rest nine
times as long as a turn took; so do the tails, all of them together. So each has about a tenth of the loop at
most, and under a producer at full speed they leap ahead and say over how many records. Where very many topics
are watched their rings are smaller, so that all of them together have a bound too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from uuid import UUID

from tailrace.broker.gate import Access, Gate
from tailrace.broker.topic import Topic
from tailrace.http.config import HttpConfig
from tailrace.http.live.entry import Filter
from tailrace.http.live.ring import Ring
from tailrace.http.live.tail import Tail
from tailrace.model.operation import Operation as AclOperation
from tailrace.model.session import INTERNAL
from tailrace.runtime import Supervisor

logger = logging.getLogger(__name__)

_RESTS_PER_TURN = 9  # how much longer rings rest than they work
_RESTS_PER_PORTION = 9  # likewise tails, of which there may be many
_REST_S_MAX = 2.0
_FULL_RINGS_MAX = 16  # more than so many share what these may take
_PORTIONS_PER_BUFFER = 4  # a portion, and about as much that the transport holds, are within the bound


class Tails:
    """The live end of all topics that somebody watches."""

    def __init__(self, gate: Gate, config: HttpConfig) -> None:
        self._access = gate.access(INTERNAL)  # of the rings
        self._config = config
        self._tasks = Supervisor(_failed)
        self._rings: dict[UUID, Ring] = {}
        self._tails: dict[Ring, set[Tail]] = {}
        self._count = 0
        self._due: dict[Ring, None] = {}  # that have more, in the order of their turns
        self._timer: asyncio.Handle | None = None
        self._rest_until = 0.0

    def __repr__(self) -> str:
        return f"<Tails: {self._count} of {len(self._rings)} topics>"

    def __len__(self) -> int:
        return self._count

    @property
    def rings(self) -> list[Ring]:
        """One of each topic that is watched."""
        return list(self._rings.values())

    def open(self, access: Access, topic: Topic, *, filter: Filter, positions: dict[int, int] | None) -> Tail:
        """Watch a topic, from these offsets of its partitions on or from the newest. Close it afterwards.

        `access` gave out `topic` for reading, and the tail keeps it.
        """
        ring = self._rings.get(topic.id)
        if ring is None:
            watched = self._access.topic_by_id(topic.id, AclOperation.READ)
            ring = Ring(watched, config=self._config, tasks=self._tasks, schedule=self._schedule)
            if not self._rings:
                self._access.watch_topics(self._topics_changed)
            self._rings[topic.id] = ring
            self._tails[ring] = set()
            self._share_memory()
        bytes_max = max(self._config.stream_buffer_bytes_max // _PORTIONS_PER_BUFFER, 1)
        tail = Tail(self, ring, access, filter=filter, positions=positions, bytes_max=bytes_max)
        self._tails[ring].add(tail)
        self._count += 1
        return tail

    def leave(self, tail: Tail, ring: Ring) -> None:
        """A tail is over; a ring that nobody reads is given up."""
        readers = self._tails.get(ring, set())
        if tail not in readers:
            return
        readers.remove(tail)
        self._count -= 1
        if not readers:
            del self._tails[ring], self._rings[ring.topic.id]
            self._due.pop(ring, None)
            ring.close()
            self._share_memory()
            if not self._rings:
                self._access.unwatch_topics(self._topics_changed)
                self._tasks.cancel()

    def stop(self, reason: str) -> None:
        """End all of them, now."""
        for readers in list(self._tails.values()):
            for tail in list(readers):
                tail.stop(reason)

    def rest_s(self, cost_s: float) -> float:
        """How long a tail rests after work of so many seconds, as all the others want to work too."""
        return min(cost_s * _RESTS_PER_PORTION * self._count, _REST_S_MAX)

    # ---- inside

    def _topics_changed(self) -> None:
        for ring in self.rings:
            if self._access.still_exists(ring.topic):
                ring.grow()
            else:
                ring.finish(f"topic {ring.topic.name!r} was deleted")

    def _share_memory(self) -> None:
        count = max(len(self._rings), _FULL_RINGS_MAX)
        share = max(self._config.ring_bytes_max * _FULL_RINGS_MAX // count, 1)
        for ring in self._rings.values():
            ring.limit(share)

    def _schedule(self, ring: Ring) -> None:
        self._due[ring] = None
        if self._timer is None:
            self._set_timer()

    def _set_timer(self) -> None:
        loop = asyncio.get_running_loop()
        if self._rest_until > loop.time():
            self._timer = loop.call_at(self._rest_until, self._turn)
        else:
            self._timer = loop.call_soon(self._turn)

    def _turn(self) -> None:
        """One ring's turn."""
        self._timer = None
        if not self._due:
            return
        began = time.perf_counter()
        ring = next(iter(self._due))
        del self._due[ring]
        try:
            has_more = ring.turn()
        except Exception as error:
            _failed(error)
            has_more = False
            ring.fail("this tail ended by a mistake of the broker, whose log has the details")
        spent_s = time.perf_counter() - began
        self._rest_until = asyncio.get_running_loop().time() + spent_s * _RESTS_PER_TURN
        if has_more:
            self._due[ring] = None
        if self._due:
            self._set_timer()


def _failed(error: BaseException) -> None:
    logger.error("a tail could not be read on: %s", error, exc_info=error)
