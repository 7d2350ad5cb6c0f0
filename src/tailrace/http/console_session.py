"""Sessions of the console: who a browser is, by a cookie. Pure but for random ids: the time is given.

    login ──open──► session ──find──► touched ... ──► ended by logout, idle for 30 min, 12 h after its login,
                                                      or by a change of the password, disabling or deletion

A session is in the memory of its node, under the SHA-256 of its id: what can be read there is no cookie. It
is not stored, so a restart of the node ends it; a stored session would be one more secret on the disk, in
every backup. The id has 256 random bits and is new at every login: an id that a browser brought from
elsewhere never becomes a session. Sessions are bounded, of one user and of all; the one that was used least
recently ends for a new one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tailrace.security import Authenticated, Users
from tailrace.security.secret import Secret

IDLE_S: Final = 30 * 60
LIFE_S: Final = 12 * 3600
SESSIONS_MAX: Final = 10_000
PER_USER_MAX: Final = 50
_ID_BYTES: Final = 32
_ID_CHARS_MAX: Final = 64
"""A cookie that is longer is none of ours, and is not hashed."""


@dataclass(slots=True, eq=False)
class ConsoleSession:
    """One browser that has logged in."""

    who: Authenticated
    csrf: Secret  # what a change has to bring; known to pages of the console alone
    began_at: float  # on the monotonic clock
    used_at: float
    proof: object = field(repr=False)  # what the user was when it logged in
    ended: bool = False
    watchers: list[Callable[[], None]] = field(default_factory=list, repr=False)

    def is_csrf(self, given: str) -> bool:
        """Whether a change comes from a page of this session."""
        return hmac.compare_digest(given.encode(), self.csrf.reveal().encode())

    def left_s(self, now: float) -> float:
        """How long it lasts if nothing more is done with it; 0 or less: it is over."""
        return min(self.used_at + IDLE_S, self.began_at + LIFE_S) - now

    def watch(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the session ends, until `unwatch`: for streams that are open."""
        self.watchers.append(callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        if callback in self.watchers:
            self.watchers.remove(callback)


class ConsoleSessions:
    """The sessions of one node."""

    def __init__(
        self, users: Users, *, monotonic: Callable[[], float], sessions_max: int = SESSIONS_MAX
    ) -> None:
        self._users = users
        self._monotonic = monotonic
        self._sessions_max = sessions_max
        self._sessions: OrderedDict[bytes, ConsoleSession] = OrderedDict()  # least recently used first
        users.watch(self._user_changed)

    def __repr__(self) -> str:
        return f"<ConsoleSessions: {len(self)}>"

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ConsoleSession]:
        return iter(list(self._sessions.values()))

    def open(self, who: Authenticated) -> tuple[str, ConsoleSession]:
        """A new session of a user that was proven, and its id, which is kept nowhere."""
        now = self._monotonic()
        self._end_over(now)
        self._make_room(who)
        made = secrets.token_urlsafe(_ID_BYTES)
        csrf = Secret(secrets.token_urlsafe(_ID_BYTES))
        session = ConsoleSession(who, csrf, now, now, self._proof(who))
        self._sessions[_key(made)] = session
        return made, session

    def find(self, given: str, *, idle_s: float = 0.0) -> ConsoleSession | None:
        """The session of an id, if it lasts; `idle_s` is for how long its user has done nothing."""
        if not 0 < len(given) <= _ID_CHARS_MAX:
            return None
        key, now = _key(given), self._monotonic()
        session = self._sessions.get(key)
        if session is None:
            return None
        if session.left_s(now) <= 0:
            self._end(key)
            return None
        session.used_at = max(session.used_at, now - max(idle_s, 0.0))
        self._sessions.move_to_end(key)
        return session

    def left_s(self, session: ConsoleSession) -> float:
        """How long a session lasts if nothing more is done with it; 0 or less: it is over."""
        return session.left_s(self._monotonic())

    def end(self, session: ConsoleSession) -> None:
        """Log out."""
        for key, found in list(self._sessions.items()):
            if found is session:
                self._end(key)

    def end_over(self) -> None:
        """End what nobody uses any more."""
        self._end_over(self._monotonic())

    def close(self) -> None:
        """End all."""
        self._users.unwatch(self._user_changed)
        for key in list(self._sessions):
            self._end(key)

    # ---- inside

    def _end_over(self, now: float) -> None:
        for key, session in list(self._sessions.items()):
            if session.left_s(now) <= 0:
                self._end(key)

    def _make_room(self, who: Authenticated) -> None:
        own = [key for key, session in self._sessions.items() if session.who.principal == who.principal]
        for key in own[: max(len(own) - PER_USER_MAX + 1, 0)]:
            self._end(key)
        while len(self._sessions) >= self._sessions_max:
            self._end(next(iter(self._sessions)))

    def _user_changed(self, name: str) -> None:
        for key, session in list(self._sessions.items()):
            if session.who.principal.name == name and self._proof(session.who) != session.proof:
                self._end(key)

    def _proof(self, who: Authenticated) -> object:
        """What must stay as it is: the user exists, is enabled, and has this password."""
        user = self._users.get(who.principal.name)
        return None if user is None or not user.enabled else dict(user.verifiers)

    def _end(self, key: bytes) -> None:
        session = self._sessions.pop(key)
        session.ended = True
        for watcher in list(session.watchers):
            watcher()


def _key(given: str) -> bytes:
    return hashlib.sha256(given.encode(errors="replace")).digest()
