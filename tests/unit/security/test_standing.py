"""What a login comes to, and whether it still holds when rights are decided."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tailrace.broker.gate import allow_standing
from tailrace.model.operation import CLUSTER, Operation, Resource, ResourceKind
from tailrace.model.scope import read_scope
from tailrace.model.session import EMBEDDED, Principal, Session
from tailrace.security import NOT_AUTHENTICATED, OAUTHBEARER, Authenticated, Secret, Standing, Tokens, Users
from tailrace.security.api_token import LIFETIME_MS

ORDERS = Resource(ResourceKind.TOPIC, "orders")


def came_by(mechanism: str, name: str = "alice", scope: str = "") -> Session:
    found = Authenticated(
        Principal("User", name),
        mechanism,
        expires_at_ms=7,
        scope=read_scope([scope]) if scope else None,
        token_id="t1" if scope else "",
    )
    return found.session(host="10.0.0.1", listener="web")


def test_a_session_carries_everything_that_was_proven() -> None:
    session = came_by("token", scope="read:topic:orders")
    assert str(session) == "User:alice at 10.0.0.1 by web"
    assert (session.mechanism, session.expires_at_ms, session.token_id) == ("token", 7, "t1")
    assert session.scope == read_scope(["read:topic:orders"])
    assert {session: 1}[came_by("token", scope="read:topic:orders")] == 1  # replies are kept by session
    assert NOT_AUTHENTICATED.session(host="", listener="web") == Session(listener="web")


def test_a_login_holds_as_long_as_its_user_may_log_in() -> None:
    async def main() -> None:
        users = Users()
        await users.create("alice", Secret("open-sesame-42"))
        standing = Standing(users)
        assert standing.holds(came_by("PLAIN")) and standing.holds(came_by("of-a-later-version"))
        assert not standing.holds(came_by("PLAIN", "bob"))
        assert standing.holds(came_by(OAUTHBEARER, "bob"))  # who is no user of this node
        assert standing.holds(EMBEDDED)
        await users.set_enabled("alice", enabled=False)
        assert not standing.holds(came_by("PLAIN"))
        assert not standing.holds(came_by("token", scope="all"))
        await users.close()

    asyncio.run(main())


def test_a_scope_holds_without_access_control() -> None:
    async def main() -> None:
        users = Users()
        await users.create("alice", Secret("open-sesame-42"))
        tokens = Tokens(users, now_ms=lambda: 0)
        scope = read_scope(["read:topic:orders"])
        made, _ = await tokens.create("alice", scope=scope, lifetime_ms=LIFETIME_MS)
        allows = allow_standing(Standing(users, tokens))
        session = replace(came_by("token", scope="read:topic:orders"), token_id=made.id)
        assert allows(session, Operation.READ, ORDERS)
        assert not allows(session, Operation.WRITE, ORDERS)
        assert not allows(session, Operation.ALTER, CLUSTER)
        assert allows(came_by("PLAIN"), Operation.ALTER, CLUSTER)
        await tokens.revoke(made.id)
        assert not allows(session, Operation.READ, ORDERS)
        await users.close()

    asyncio.run(main())
