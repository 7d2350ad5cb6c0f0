"""API tokens by REST: whose they are, who may make and end them, and what their sessions may do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.unit.http.conftest import Run, check_error

from tailrace.broker.gate import Access
from tailrace.http.error import Code
from tailrace.http.session import SESSION_KEY, LoggedIn
from tailrace.model import BrokerError
from tailrace.model.operation import CLUSTER, Operation, Resource
from tailrace.model.scope import read_scope
from tailrace.model.session import Principal, Session
from tailrace.security import OAUTHBEARER, Authenticated, Secret
from tailrace.security.api_token import LIFETIME_MS
from tailrace.server.node import Node

PASSWORD = Secret("open-sesame-42")
PATH = "/api/v1/tokens"


@asynccontextmanager
async def caller(
    node: Node, session: Authenticated, host: str = "127.0.0.1"
) -> AsyncIterator[httpx.AsyncClient]:
    """A client that has logged in."""
    app = node.http_app()

    async def logged_in(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, SESSION_KEY: LoggedIn(session)}, receive, send)

    transport = httpx.ASGITransport(app=logged_in, client=(host, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def came_as(name: str, mechanism: str = "PLAIN") -> Authenticated:
    return Authenticated(Principal("User", name), mechanism)


def without_cluster(session: Session, operation: Operation, resource: Resource) -> bool:
    """A rule by which users have no right on the cluster."""
    return resource != CLUSTER


async def make_users(node: Node) -> None:
    for name in ("alice", "bob"):
        await node.broker.users.create(name, PASSWORD)


def test_a_token_comes_is_listed_and_goes(run: Run, node: Node) -> None:
    async def scenario() -> None:
        await make_users(node)
        async with caller(node, came_as("alice")) as client:
            body = {"scope": ["read:topic:orders"], "name": "mail", "expires": "2h"}
            answer = await client.post(PATH, json=body)
            assert answer.status_code == 201
            made = answer.json()
            assert made["token"].startswith(f"trt_{made['id']}_")
            assert made["expires_ms"] - made["created_ms"] == 7_200_000
            listed = await client.get(PATH)
            assert made["token"] not in listed.text
            assert listed.json()["tokens"] == [
                {
                    **{key: value for key, value in made.items() if key != "token"},
                    "used_ms": None,
                }
            ]
            assert (made["owner"], made["name"], made["scope"]) == ("alice", "mail", ["read:topic:orders"])
            assert (await client.delete(f"{PATH}/{made['id']}")).status_code == 204
            check_error(await client.delete(f"{PATH}/{made['id']}"), Code.TOKEN_NOT_FOUND, "no API token")

    run(scenario())


def test_users_have_their_own_tokens_and_not_those_of_others(run: Run, node: Node) -> None:
    async def scenario() -> None:
        await make_users(node)
        node.broker.gate._authorize = without_cluster
        async with caller(node, came_as("alice")) as alice, caller(node, came_as("bob")) as bob:
            of_bob = (await bob.post(PATH, json={"scope": ["all"]})).json()
            of_alice = (await alice.post(PATH, json={"scope": ["all"], "owner": "alice"})).json()
            assert [each["id"] for each in (await alice.get(PATH)).json()["tokens"]] == [of_alice["id"]]
            mine = await alice.get(f"{PATH}?owner=alice")
            assert [each["id"] for each in mine.json()["tokens"]] == [of_alice["id"]]
            check_error(await alice.get(f"{PATH}?owner=bob"), Code.AUTHORIZATION_FAILED, "may not describe")
            refused = await alice.post(PATH, json={"scope": ["all"], "owner": "bob"})
            check_error(refused, Code.AUTHORIZATION_FAILED, "may not alter")
            # Another's token looks like one that does not exist.
            for token_id in (of_bob["id"], "0" * 16):
                gone = await alice.delete(f"{PATH}/{token_id}")
                check_error(gone, Code.TOKEN_NOT_FOUND, "there is no API token of this id")
            check_error(
                await alice.post(f"{PATH}/rotate-key", json={}), Code.AUTHORIZATION_FAILED, "may not alter"
            )
            assert of_bob["id"] in node.broker.tokens

    run(scenario())


def test_who_may_alter_the_cluster_makes_and_ends_tokens_of_others(run: Run, node: Node) -> None:
    async def scenario() -> None:
        await make_users(node)
        async with caller(node, came_as("alice")) as client:
            made = (await client.post(PATH, json={"scope": ["all"], "owner": "bob"})).json()
            assert made["owner"] == "bob"
            assert len((await client.get(PATH)).json()["tokens"]) == 1
            assert (await client.post(f"{PATH}/rotate-key", json={})).json() == {"tokens": 1}
            again = await client.post(f"{PATH}/rotate-key", json={})
            assert again.status_code == 409 and "--drop" in again.text
            assert (await client.post(f"{PATH}/rotate-key", json={"drop": True})).json() == {"tokens": 0}
            check_error(
                await client.post(PATH, json={"scope": ["all"], "owner": "carol"}),
                Code.USER_NOT_FOUND,
                "there is no user 'carol'",
            )

    run(scenario())


def test_a_token_makes_no_tokens_and_sees_none(run: Run, node: Node) -> None:
    async def scenario() -> None:
        await make_users(node)
        scope = read_scope(["read:topic:orders"])
        made, _ = await node.broker.tokens.create("alice", scope=scope, lifetime_ms=LIFETIME_MS)
        by_token = replace(came_as("alice", "token"), scope=scope, token_id=made.id)
        async with caller(node, by_token) as client:
            refused = await client.post(PATH, json={"scope": ["read:topic:orders"]})
            check_error(refused, Code.AUTHORIZATION_FAILED, "cannot create tokens")
            check_error(await client.get(PATH), Code.AUTHORIZATION_FAILED, "may not describe")
            check_error(await client.delete(f"{PATH}/{made.id}"), Code.TOKEN_NOT_FOUND, "no API token")
        async with caller(node, replace(by_token, scope=read_scope(["all"]))) as client:
            assert (await client.post(PATH, json={"scope": ["all"]})).status_code == 403

    run(scenario())


@pytest.mark.parametrize(
    "who", [Authenticated(Principal("User", "ANONYMOUS"), ""), came_as("alice", OAUTHBEARER)]
)
def test_a_principal_that_is_no_user_names_the_owner(run: Run, node: Node, who: Authenticated) -> None:
    async def scenario() -> None:
        await make_users(node)
        async with caller(node, who) as client:
            check_error(
                await client.post(PATH, json={"scope": ["all"]}), Code.INVALID_REQUEST, "Name the owner"
            )
            assert (await client.post(PATH, json={"scope": ["all"], "owner": "bob"})).status_code == 201

    run(scenario())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "scope"),
        ({"scope": []}, "scope"),
        ({"scope": ["read"]}, "is no permission"),
        ({"scope": ["all"], "expires": "soon"}, "length of time"),
        ({"scope": ["all"], "expires": "366d"}, "365 days"),
        ({"scope": ["all"], "expires": "1s"}, "60 s"),
        ({"scope": ["all"], "name": "x" * 101}, "100 printable"),
        ({"scope": ["all"], "token": "trt_mine"}, "token"),
    ],
)
def test_what_no_token_can_be_is_refused(run: Run, node: Node, body: dict[str, Any], said: str) -> None:
    async def scenario() -> None:
        await make_users(node)
        async with caller(node, came_as("alice")) as client:
            check_error(await client.post(PATH, json=body), Code.INVALID_REQUEST, said)
        assert not node.broker.tokens

    run(scenario())


def test_a_token_is_not_sent_to_other_machines_without_encryption(run: Run, node: Node) -> None:
    async def scenario() -> None:
        await make_users(node)
        async with caller(node, came_as("alice"), host="192.0.2.7") as client:
            refused = await client.post(PATH, json={"scope": ["all"]})
            check_error(refused, Code.AUTHORIZATION_FAILED, "without encryption")
        assert not node.broker.tokens

    run(scenario())


def test_a_scope_is_what_the_session_may_do(run: Run, node: Node) -> None:
    async def scenario() -> None:
        await make_users(node)
        scope = read_scope(["write:topic:orders", "create:topic:orders"])
        made, _ = await node.broker.tokens.create("alice", scope=scope, lifetime_ms=LIFETIME_MS)
        by_token = replace(came_as("alice", "token"), scope=scope, token_id=made.id)
        async with caller(node, by_token) as client:
            body = {"records": [{"value": "x"}]}
            assert (await client.post("/api/v1/topics/orders/records", json=body)).status_code == 200
            check_error(
                await client.get("/api/v1/topics/orders/records?partition=0&offset=0"),
                Code.AUTHORIZATION_FAILED,
                "may not read",
            )
            refused = await client.post("/api/v1/topics/others/records", json=body)
            check_error(refused, Code.AUTHORIZATION_FAILED, "may not")

    run(scenario())


def test_a_revoked_token_may_do_nothing_with_a_session_that_is_left(run: Run, node: Node) -> None:
    async def scenario() -> None:
        await make_users(node)
        made, _ = await node.broker.tokens.create("alice", scope=read_scope(["all"]), lifetime_ms=LIFETIME_MS)
        session = replace(came_as("alice", "token"), token_id=made.id).session(host="", listener="kafka")
        access: Access = node.broker.gate.access(session)
        access.cluster(Operation.DESCRIBE)
        version = access.version
        await node.broker.tokens.revoke(made.id)
        assert access.version != version  # what is kept open asks again
        with pytest.raises(BrokerError, match="may not"):
            access.cluster(Operation.DESCRIBE)
        await asyncio.sleep(0)

    run(scenario())
