"""Principals that may not come: stored first, told to watchers then, and kept apart from users."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tailrace.cluster import MemoryStore, MetadataDisabled
from tailrace.model import BrokerError, StorageError
from tailrace.model.session import Principal, Session
from tailrace.security import CERTIFICATE, Disabled, Secret, Standing, Users, parse_principal
from tailrace.security import disabled as module

ALICE = Principal("User", "CN=alice,O=Acme")


def play(scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(MemoryStore()), 60))


def test_what_is_disabled_stays_so_and_is_told() -> None:
    async def scenario(store: MemoryStore) -> None:
        disabled = Disabled(MetadataDisabled(store))
        told: list[Principal] = []
        disabled.watch(told.append)
        assert disabled.admits(ALICE)
        await disabled.set_enabled(ALICE, enabled=False)
        await disabled.set_enabled(ALICE, enabled=False)
        assert not disabled.admits(ALICE) and list(disabled) == [ALICE] and told == [ALICE, ALICE]
        again = Disabled(MetadataDisabled(store))
        await again.load()
        assert not again.admits(ALICE) and again.admits(Principal("User", "CN=alice"))
        await again.set_enabled(ALICE, enabled=True)
        await disabled.load()
        assert disabled.admits(ALICE) and not list(disabled)

    play(scenario)


def test_a_change_that_cannot_be_stored_is_not_made() -> None:
    class Broken(MetadataDisabled):
        async def add(self, principal: Principal) -> None:
            raise StorageError("write", "metadata", "no space left")

    async def scenario(store: MemoryStore) -> None:
        failed: list[BaseException] = []
        disabled = Disabled(Broken(store), on_failure=failed.append)
        with pytest.raises(StorageError):
            await disabled.set_enabled(ALICE, enabled=False)
        assert disabled.admits(ALICE) and len(failed) == 1

    play(scenario)


def test_the_list_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DISABLED_MAX", 1)

    async def scenario(store: MemoryStore) -> None:
        disabled = Disabled(MetadataDisabled(store))
        await disabled.set_enabled(ALICE, enabled=False)
        with pytest.raises(BrokerError, match="no more can be"):
            await disabled.set_enabled(Principal("User", "CN=bob"), enabled=False)
        await disabled.set_enabled(ALICE, enabled=True)
        await disabled.set_enabled(Principal("User", "CN=bob"), enabled=False)

    play(scenario)


@pytest.mark.parametrize("text", ["User:", "Group:x", ":x", "User:a\nb", "User:" + "x" * 1025])
def test_what_is_no_principal_is_refused(text: str) -> None:
    with pytest.raises(BrokerError, match="a principal is User:NAME"):
        parse_principal(text)


def test_a_name_without_a_colon_is_a_user_of_the_store() -> None:
    assert parse_principal("alice") is None
    assert parse_principal("User:CN=a:b") == Principal("User", "CN=a:b")


def test_a_session_by_certificate_ends_with_its_principal_or_a_user_of_its_name() -> None:
    async def scenario(store: MemoryStore) -> None:
        users = Users(disabled=MetadataDisabled(store))
        standing = Standing(users)
        session = Session(principal=Principal("User", "alice"), listener="kafka", mechanism=CERTIFICATE)
        assert standing.holds(session)
        await users.set_enabled("User:alice", enabled=False)
        assert not standing.holds(session)
        await users.set_enabled("User:alice", enabled=True)
        assert standing.holds(session)
        await users.create("alice", Secret("open sesame 42"))
        await users.set_enabled("alice", enabled=False)
        assert not standing.holds(session)
        await users.close()

    play(scenario)
