"""Whether a login that succeeded still holds: asked with every decision about rights.

A connection is ended when its user is disabled or deleted. What it has under way until then, and sessions
that no listener finds, are refused here.
"""

from __future__ import annotations

from tailrace.model.session import Session
from tailrace.security.mechanism import FROM_ELSEWHERE
from tailrace.security.users import Users


class Standing:
    """The logins of one node."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def holds(self, session: Session) -> bool:
        """Whether who came by this session may still act; True for sessions without a login."""
        if not session.mechanism or session.mechanism in FROM_ELSEWHERE:
            return True
        return self._users.may_log_in(session.principal.name)
