"""API tokens as one session may see and change them.

A user creates, lists and revokes tokens of its own. For those of others it needs ALTER on the cluster, or
DESCRIBE to list them. A session that came by a token creates none: a token must not outgrow its scope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import CLUSTER, Operation
from tailrace.model.scope import Scope
from tailrace.model.session import Session
from tailrace.security import ApiToken, Secret, Tokens, UnknownToken
from tailrace.security.mechanism import FROM_ELSEWHERE

if TYPE_CHECKING:
    from tailrace.broker.gate import Access


class OwnedTokens:
    """The tokens of a node, for one session."""

    def __init__(self, tokens: Tokens, access: Access) -> None:
        self._tokens = tokens
        self._access = access

    @property
    def own_name(self) -> str:
        """The user whose tokens are the session's own; "" where it is none of this node's users."""
        session = self._access.session
        return session.principal.name if _is_user(session) else ""

    def list(self, owner: str = "") -> list[ApiToken]:
        """Tokens of a user; without a name those of all, as far as the session may see them."""
        access, own = self._access, self.own_name
        is_free = bool(own) and not access.session.token_id
        if is_free and (owner == own or (not owner and not access.allows(Operation.DESCRIBE, CLUSTER))):
            return self._tokens.of(own)
        access.cluster(Operation.DESCRIBE)
        return self._tokens.of(owner) if owner else list(self._tokens.values())

    async def create(
        self, owner: str, *, scope: Scope, lifetime_ms: int, label: str
    ) -> tuple[ApiToken, Secret]:
        """A token of `owner`, by default of the session's own user; its text is not known again."""
        owner = self.check_owner(owner)
        with self._access.changing("token.create", f"tokens of user {owner!r}"):
            return await self._tokens.create(owner, scope=scope, lifetime_ms=lifetime_ms, label=label)

    def check_owner(self, owner: str) -> str:
        """The user that a new token is for; the error if the session may not create one for it."""
        session = self._access.session
        if session.token_id:
            raise BrokerError(
                "an API token cannot create tokens. Log in with a password",
                code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            )
        owner = owner or self.own_name
        if not owner:
            raise BrokerError(
                f"{session.principal} is no user of this node, and tokens belong to users. Name the owner",
                code=ErrorCode.INVALID_REQUEST,
            )
        if owner != self.own_name:
            self._access.cluster(Operation.ALTER)
        return owner

    async def revoke(self, token_id: str) -> None:
        """End a token; RESOURCE_NOT_FOUND also for one that is of another user."""
        if not self.own_name:
            self._access.cluster(Operation.ALTER)
        found = self._tokens.get(token_id)
        is_own = found is not None and found.owner == self.own_name
        needs_right = not is_own or bool(self._access.session.token_id)
        if needs_right and not self._access.allows(Operation.ALTER, CLUSTER):
            raise UnknownToken
        resource = f"token {token_id!r}" + (f" of user {found.owner!r}" if found is not None else "")
        with self._access.changing("token.revoke", resource):
            await self._tokens.revoke(token_id)

    async def rotate_key(self, *, drop: bool) -> int:
        """A new server key; returns how many tokens are under the earlier one."""
        self._access.cluster(Operation.ALTER)
        with self._access.changing("token.rotate_key", str(CLUSTER)):
            return await self._tokens.rotate_key(drop=drop)


def _is_user(session: Session) -> bool:
    return bool(session.mechanism) and session.mechanism not in FROM_ELSEWHERE
