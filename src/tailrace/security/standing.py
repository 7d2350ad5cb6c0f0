"""Whether a login that succeeded still holds: asked with every decision about rights.

A connection is ended when its user is disabled or deleted. What it has under way until then, and sessions
that no listener finds, are refused here.
"""

from __future__ import annotations

from tailrace.model.session import Session
from tailrace.security.mechanism import FROM_ELSEWHERE
from tailrace.security.tokens import Tokens
from tailrace.security.users import Users


class Standing:
    """The logins of one node."""

    def __init__(self, users: Users, tokens: Tokens | None = None) -> None:
        self._users = users
        self._tokens = tokens

    def holds(self, session: Session) -> bool:
        """Whether the principal of this session may still act; True for sessions without a login."""
        if not session.mechanism:
            return True
        if session.token_id:
            return self._tokens is not None and self._tokens.is_live(session.token_id)
        name = session.principal.name
        if session.mechanism in FROM_ELSEWHERE:  # unless a user of the same name is disabled
            return name not in self._users or self._users.may_log_in(name)
        return self._users.may_log_in(name)
