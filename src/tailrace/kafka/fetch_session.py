"""Fetch sessions (KIP-227): a client names its partitions once, and then only what changes.

Pure state: no clock, no socket, no log. A request says where it stands by two numbers:

    session id   epoch   meaning
    0            -1      no session: all partitions are named, all are answered
    0            0       the same, and make a session if there is room; the answer carries its id
    id           -1      end the session, and read without one
    id           0       end the session, and make another one
    id           n > 0   the n-th request of the session: only changes are named, and only partitions that
                         have records, an error or new offsets are answered

A session that is not known, or another epoch than the next one, is answered with an error and nothing else;
the client then starts over with all partitions. So is a request that names topics by their ids in a session
that began with names, or the other way round (KIP-516).

Sessions are evicted, the one longest unused first, and only if it was not used for a while: else the newcomer
goes without one, which costs it bytes and nothing more.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tailrace.model import ErrorCode, TopicPartition
from tailrace.wire.kafka import FetchPartition, FetchRequest, FetchResult, TopicRef

NO_SESSION = 0
_FINAL_EPOCH = -1
_FIRST_EPOCH = 0
_EPOCH_MAX = (1 << 31) - 1
_UNTOLD = -1
_random = random.SystemRandom()


class Wanted:
    """One partition that a client reads, and what a session told it last."""

    __slots__ = (
        "bytes_max",
        "key",
        "leader_epoch",
        "offset",
        "told_high_watermark",
        "told_start",
        "topic_id",
        "tp",
    )

    def __init__(self, topic: TopicRef, asked: FetchPartition) -> None:
        self.key: tuple[TopicRef, int]  # of its session
        if isinstance(topic, str):
            self.topic_id: UUID | None = None
            self.key = self.tp = TopicPartition(topic, asked.index)
        else:
            self.topic_id = topic
            self.key = topic, asked.index
            self.tp = TopicPartition("", asked.index)  # its name is found when it is read
        self.told_high_watermark = _UNTOLD
        self.told_start = _UNTOLD
        self.update(asked)

    def update(self, asked: FetchPartition) -> None:
        """The client goes on from elsewhere."""
        self.offset = asked.fetch_offset
        self.bytes_max = asked.partition_max_bytes
        self.leader_epoch = asked.current_leader_epoch


class FetchSession:
    """The partitions of one client, in the order in which they are read."""

    __slots__ = ("by_id", "epoch", "id", "partitions", "used_at")

    def __init__(self, session_id: int, partitions: Iterable[Wanted], now: float, *, by_id: bool) -> None:
        self.id = session_id
        self.epoch = 1  # of the next request
        self.by_id = by_id
        self.partitions: dict[tuple[TopicRef, int], Wanted] = {wanted.key: wanted for wanted in partitions}
        self.used_at = now


Answer = tuple[Wanted, "FetchResult[Any]"]


@dataclass(slots=True)
class FetchContext:
    """What one request reads, and how its answer is to look."""

    wanted: Sequence[Wanted]
    session: FetchSession | None = None
    incremental: bool = False
    error: ErrorCode = ErrorCode.NONE

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.id

    def choose(self, answers: list[Answer]) -> list[Answer]:
        """What of the answers is sent; a session takes note of it.

        Partitions that had records go to the end of the line, so that where the client's limit lets only a
        few through it is not always the same ones.
        """
        session = self.session
        if session is None:
            return answers
        chosen = []
        for answer in answers:
            wanted, result = answer
            has_records = result.records is not None
            if _take_note(wanted, result) or has_records or not self.incremental:
                chosen.append(answer)
            if has_records and session.partitions.pop(wanted.key, None) is not None:
                session.partitions[wanted.key] = wanted
        return chosen


def _take_note(wanted: Wanted, result: FetchResult[Any]) -> bool:
    """Whether the client must be told of this even without records. After an error it is told again."""
    if result.error_code:
        wanted.told_high_watermark = _UNTOLD
        return True
    if (result.high_watermark, result.log_start_offset) == (wanted.told_high_watermark, wanted.told_start):
        return False
    wanted.told_high_watermark, wanted.told_start = result.high_watermark, result.log_start_offset
    return True


class FetchSessions:
    """The sessions of one listener, the least recently used first."""

    def __init__(
        self,
        *,
        sessions_max: int,
        partitions_max: int,
        idle_s: float,
        draw: Callable[[int, int], int] = _random.randint,
    ) -> None:
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._partitions = 0
        self._idle_s = idle_s
        self._draw = draw

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, now: float) -> FetchContext:
        """What the request reads, according to its session."""
        if request.session_epoch in (_FINAL_EPOCH, _FIRST_EPOCH):
            self._end(request.session_id)
            wanted = [Wanted(topic.topic, asked) for topic in request.topics for asked in topic.partitions]
            session = None
            if request.session_epoch == _FIRST_EPOCH and wanted:
                session = self._open(wanted, now, by_id=request.by_id)
            return FetchContext(wanted, session)
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext((), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchContext((), error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != request.by_id:
            return FetchContext((), error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._go_on(session, request, now)

    def _go_on(self, session: FetchSession, request: FetchRequest, now: float) -> FetchContext:
        partitions = session.partitions
        before = len(partitions)
        for topic in request.topics:
            for asked in topic.partitions:
                known = partitions.get((topic.topic, asked.index))
                if known is None:
                    wanted = Wanted(topic.topic, asked)
                    partitions[wanted.key] = wanted
                else:
                    known.update(asked)
        for forgotten, indexes in request.forgotten:
            for index in indexes:
                partitions.pop((forgotten, index), None)
        self._partitions += len(partitions) - before
        if not partitions or self._partitions > self._partitions_max:
            left = list(partitions.values())
            self._end(session.id)
            return FetchContext(left)
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.used_at = now
        self._sessions.move_to_end(session.id)
        return FetchContext(list(partitions.values()), session, incremental=True)

    def _open(self, wanted: list[Wanted], now: float, *, by_id: bool) -> FetchSession | None:
        while (
            len(self._sessions) >= self._sessions_max or self._partitions + len(wanted) > self._partitions_max
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used_at < self._idle_s:
                return None
            self._end(oldest.id)
        session_id = self._draw(1, _EPOCH_MAX)
        while session_id in self._sessions:
            session_id = self._draw(1, _EPOCH_MAX)
        session = self._sessions[session_id] = FetchSession(session_id, wanted, now, by_id=by_id)
        self._partitions += len(session.partitions)
        return session

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)
