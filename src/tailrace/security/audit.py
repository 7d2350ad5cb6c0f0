"""What is written down of security: logins, denials, and changes of what a broker has and allows.

    Audit.record(Event) ──► Folding ──► a bounded queue ──► the audit topic (broker/audit_log.py)
                                    └─► a log line

`record` never waits and never raises. Events that a client can cause without bound (logins, denials, changes
that failed) are folded: the first is an entry at once, and what repeats it within a minute becomes one entry
with a count. How many different events are folded at a time is bounded; beyond that they are counted without
principal, address and resource. A queue that is full drops entries and counts them.

An event names who did what to what, and how it went. It never holds a payload, a password, a token or a text
that a client sent as a login that failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tailrace.model import BrokerError, ErrorCode, escape
from tailrace.model.operation import Operation, Resource
from tailrace.model.session import Session

logger = logging.getLogger("tailrace.audit")

LOGIN: Final = "login"
LOGOUT: Final = "logout"
GROUP_OFFSETS: Final = "group.offsets"
"""Offsets that were committed by a client outside of the group: a reset, or a consumer without a group."""
ACCESS: Final = "access"
"""An operation that was denied."""

OK: Final = "ok"
FAILED: Final = "failed"
DENIED: Final = "denied"

FOLDED_MS: Final = 60_000
OTHERS: Final = "(others)"
"""Stands for what is not told apart any more because there is too much of it."""
_TEXT_MAX: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, and to whom it is put down."""

    what: str  # login, access, or a change such as topic.create
    result: str  # ok, failed, denied, or the name of an error code
    principal: str = ""  # User:alice; "": not known
    host: str = ""  # "": in this process
    listener: str = ""
    mechanism: str = ""
    operation: str = ""  # Kafka's word for it, such as WRITE
    resource: str = ""  # such as topic 'orders'

    @property
    def is_folded(self) -> bool:
        """Whether a client can cause this again and again at no cost."""
        return self.what in (LOGIN, ACCESS, GROUP_OFFSETS) or self.result != OK


class Entry(NamedTuple):
    """An event as it is written, with how often it happened."""

    time_ms: int
    event: Event
    times: int = 1


@dataclass(slots=True)
class _Repeated:
    since_ms: int
    count: int = 0  # since the entry that was written


class Folding:
    """Pure: the events of the last minute that are told once. The time is given."""

    def __init__(self, *, events_max: int = 1_000) -> None:
        self._events_max = events_max
        self._repeated: dict[Event, _Repeated] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._repeated)

    def add(self, event: Event, *, now_ms: int) -> list[Entry]:
        """What is to be written now that this has happened."""
        due = self.due(now_ms=now_ms)
        if event not in self._repeated and len(self._repeated) >= self._events_max:
            event = replace(event, principal=OTHERS, host=OTHERS, operation="", resource="")
        known = self._repeated.get(event)
        if known is not None:
            known.count += 1
            return due
        self._repeated[event] = _Repeated(now_ms)
        return [*due, Entry(now_ms, event)]

    def due(self, *, now_ms: int, everything: bool = False) -> list[Entry]:
        """What was repeated, of events whose minute is over."""
        entries = []
        for event, repeated in list(self._repeated.items()):
            if not everything and 0 <= now_ms - repeated.since_ms < FOLDED_MS:
                break
            del self._repeated[event]
            if repeated.count:
                entries.append(Entry(now_ms, event, repeated.count))
        return entries


@dataclass(slots=True)
class AuditCounts:
    """Entries since the start. The numbers only grow."""

    recorded: int = 0
    dropped: int = 0  # the queue was full


class Audit:
    """Takes events of one node, and keeps entries until they are written."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        is_on: bool = True,
        entries_max: int = 10_000,
        folding: Folding | None = None,
    ) -> None:
        """One that is not on takes nothing."""
        self.is_on = is_on
        self.counts = AuditCounts()
        self._now_ms = now_ms
        self._entries_max = entries_max
        self._entries: deque[Entry] = deque()
        self._folding = folding or Folding()
        self._arrived = asyncio.Event()

    def __repr__(self) -> str:
        state = f"{len(self._entries)} entries to write" if self.is_on else "off"
        return f"<Audit {state}, {self.counts.dropped} dropped>"

    def record(self, event: Event) -> None:
        """Write this down, soon; never waits and never raises."""
        if not self.is_on:
            return
        event, now_ms = _bounded(event), self._now_ms()
        if event.is_folded:
            for entry in self._folding.add(event, now_ms=now_ms):
                self._keep(entry)
        else:
            self._keep(Entry(now_ms, event))

    def login(
        self, *, name: str, host: str, listener: str, mechanism: str, result: str = OK, kind: str = "User"
    ) -> None:
        """Someone has logged in, or failed to; of an unknown user the name is "" and is not written."""
        principal = f"{kind}:{name}" if name else ""
        self.record(
            Event(
                what=LOGIN,
                result=result,
                principal=principal,
                host=host,
                listener=listener,
                mechanism=mechanism,
            )
        )

    def denied(self, session: Session, operation: Operation, resource: Resource) -> None:
        """A session was refused something."""
        self.record(
            event_of(session, what=ACCESS, result=DENIED, operation=operation.name, resource=str(resource))
        )

    def changing(self, session: Session, what: str, resource: str) -> Change:
        """`with audit.changing(...): ...` records how the change went that is made inside."""
        return Change(self, session, what, resource)

    # ---- for the writer

    def take_nowait(self, entries_max: int) -> list[Entry]:
        """The oldest entries, those included whose minute is over."""
        for entry in self._folding.due(now_ms=self._now_ms()):
            self._keep(entry)
        count = min(entries_max, len(self._entries))
        return [self._entries.popleft() for _ in range(count)]

    def close(self) -> None:
        """Tell at once what is being folded; nothing is taken from now on."""
        for entry in self._folding.due(now_ms=self._now_ms(), everything=True):
            self._keep(entry)
        self.is_on = False
        self._arrived.set()

    @property
    def arrived(self) -> asyncio.Event:
        """Set when there is an entry to write; the writer clears it."""
        return self._arrived

    def _keep(self, entry: Entry) -> None:
        self.counts.recorded += 1
        logger.info("%s", Line(entry))
        if len(self._entries) >= self._entries_max:
            self.counts.dropped += 1
            return
        self._entries.append(entry)
        self._arrived.set()


class Change:
    """Records how a change went: ok, the code of the error that refused it, or failed."""

    __slots__ = ("_audit", "_resource", "_session", "_what", "code")

    def __init__(self, audit: Audit, session: Session, what: str, resource: str) -> None:
        self.code = 0  # of an error that is answered and not raised
        self._audit = audit
        self._session = session
        self._what = what
        self._resource = resource

    def __enter__(self) -> Change:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._tell(_result(error, self.code))

    def done(self) -> None:
        """The change was made before; where that is known afterwards only."""
        self._tell(OK)

    def _tell(self, result: str) -> None:
        self._audit.record(event_of(self._session, what=self._what, result=result, resource=self._resource))


class Line:
    """An entry as a log line; made when the line is written, if it is."""

    __slots__ = ("_entry",)

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def __str__(self) -> str:
        _, event, times = self._entry
        words = [event.what, event.result]
        words += [f"{name}={_word(text)}" for name, text in _fields(event) if text]
        return " ".join([*words, *([f"count={times}"] if times > 1 else [])])


def event_of(session: Session, *, what: str, result: str, operation: str = "", resource: str = "") -> Event:
    """An event of something that a session did."""
    return Event(
        what=what,
        result=result,
        principal=str(session.principal),
        host=session.host,
        listener=session.listener,
        mechanism=session.mechanism,
        operation=operation,
        resource=resource,
    )


def _result(error: BaseException | None, code: int) -> str:
    if error is None:
        return ErrorCode(code).name if code else OK
    if isinstance(error, BrokerError):
        return ErrorCode(error.code).name
    return FAILED  # also where the caller stopped waiting: what it began may yet be done


def _fields(event: Event) -> list[tuple[str, str]]:
    return [
        ("principal", event.principal),
        ("address", event.host),
        ("listener", event.listener),
        ("mechanism", event.mechanism),
        ("operation", event.operation),
        ("resource", event.resource),
    ]


def _word(text: str) -> str:
    """A value that cannot be taken for two fields."""
    plain = escape(text)
    return f'"{plain}"' if " " in plain else plain


def _bounded(event: Event) -> Event:
    """Names come from clients, and may be long."""
    if max(len(event.principal), len(event.resource), len(event.host)) <= _TEXT_MAX:
        return event
    return replace(
        event,
        principal=event.principal[:_TEXT_MAX],
        resource=event.resource[:_TEXT_MAX],
        host=event.host[:_TEXT_MAX],
    )
