"""Whether a login that succeeded still holds: asked with every decision about rights.

A connection is ended when its user is disabled or deleted. What it has under way until then, and sessions
that no listener finds, are refused here.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.model.session import Principal, Session
from tailrace.security.mechanism import FROM_ELSEWHERE
from tailrace.security.tokens import Tokens
from tailrace.security.users import Users


class Standing:
    """The logins of one node."""

    def __init__(
        self, users: Users, tokens: Tokens | None = None, *, now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """Without `now_ms` no session ends by its time."""
        self._users = users
        self._tokens = tokens
        self._now_ms = now_ms

    def holds(self, session: Session) -> bool:
        """Whether the principal of this session may still act; True for sessions without a login."""
        if not session.mechanism:
            return True
        if session.expires_at_ms is not None and self._now_ms() >= session.expires_at_ms:
            return False
        if session.token_id:
            return self._tokens is not None and self._tokens.is_live(session.token_id)
        if session.mechanism in FROM_ELSEWHERE:
            return self.admits(session.principal)
        return self._users.may_log_in(session.principal.name)

    def admits(self, principal: Principal) -> bool:
        """Whether a principal from elsewhere may come: neither it nor a user of its name is disabled."""
        name = principal.name
        if not self._users.disabled.admits(principal):
            return False
        return name not in self._users or self._users.may_log_in(name)
