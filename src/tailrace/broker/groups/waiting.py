"""What waits in a group: requests for their answers, sessions for their ends.

Rules:
- A member has at most one request waiting; a newer one of its own supersedes it, and every one is answered
  exactly once.
- A session lasts from one sign of life to the next, and stands still while a request of the member waits. The
  first join of a new member has a deadline of its own, because that member cannot send heartbeats yet.
- `wake_ms` is never later than the earliest deadline; heartbeats move deadlines away, so it may come early.
"""

from __future__ import annotations

from tailrace.broker.groups.api import JoinResult, SyncResult
from tailrace.broker.groups.effects import Effect, JoinAnswer, SyncAnswer
from tailrace.broker.groups.member import Member
from tailrace.model import ErrorCode

NEW_MEMBER_TIMEOUT_MS = 300_000
"""How long the first join of a member may wait: its client has given up by then, and will ask again."""


class Waiting:
    """The waiting requests and sessions of one group, and the effects that are to be performed."""

    __slots__ = ("effects", "joining", "wake_ms")

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.joining = 0  # members whose join waits
        self.wake_ms: int | None = None

    def park_join(self, member: Member, token: int) -> None:
        self.supersede(member)
        member.join_token = token
        self.joining += 1

    def park_sync(self, member: Member, token: int) -> None:
        self.supersede(member)
        member.sync_token = token

    def answer_join(self, member: Member, result: JoinResult | ErrorCode, now_ms: int) -> None:
        assert member.join_token is not None
        self.effects.append(JoinAnswer(token=member.join_token, result=result))
        member.join_token = None
        self.joining -= 1
        self.touch(member, now_ms)

    def answer_sync(self, member: Member, result: SyncResult | ErrorCode, now_ms: int) -> None:
        assert member.sync_token is not None
        self.effects.append(SyncAnswer(token=member.sync_token, result=result))
        member.sync_token = None
        self.touch(member, now_ms)

    def supersede(self, member: Member, error: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS) -> None:
        """Answer the request of a member that waits; by default because a newer one of its own has come."""
        if member.join_token is not None:
            self.effects.append(JoinAnswer(token=member.join_token, result=error))
            member.join_token = None
            self.joining -= 1
        if member.sync_token is not None:
            self.effects.append(SyncAnswer(token=member.sync_token, result=error))
            member.sync_token = None

    def touch(self, member: Member, now_ms: int) -> None:
        """A sign of life: the session starts again, or stands still while a request waits."""
        if member.is_new:
            self.set_deadline(member, now_ms + NEW_MEMBER_TIMEOUT_MS)
        elif member.join_token is not None or member.sync_token is not None:
            member.deadline_ms = None
        else:
            self.set_deadline(member, now_ms + member.session_timeout_ms)

    def set_deadline(self, member: Member, deadline_ms: int) -> None:
        member.deadline_ms = deadline_ms
        self.wake_by(deadline_ms)

    def wake_by(self, deadline_ms: int) -> None:
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms
