"""API tokens in the metadata store: they survive, go with their owner, and never appear in an error."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tailrace.cluster import METADATA, MetadataTokens, MetadataUsers, MirroredStore, SqliteStore
from tailrace.cluster.tokens import KEYS, TOKENS, read_token, write_token
from tailrace.model import StorageError
from tailrace.model.scope import read_scope
from tailrace.security import ApiToken, Secret, Tokens, Users
from tailrace.security.api_token import LIFETIME_MS

SCOPE = read_scope(["read:topic:orders", "describe:cluster"])
TOKEN = ApiToken(
    id="00ff00ff00ff00ff",
    owner="alice",
    label="mail",
    scope=SCOPE,
    created_ms=1,
    expires_ms=2,
    key_id="k1",
    digest=b"d" * 32,
)


def test_a_token_comes_back_as_it_was_stored() -> None:
    assert read_token(TOKENS + TOKEN.id, write_token(TOKEN)) == TOKEN


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.pop("owner"),
        lambda value: value.pop("used_ms"),
        lambda value: value.update(scope=[]),
        lambda value: value.update(scope="read:topic:orders"),
        lambda value: value.update(scope=["everything"]),
        lambda value: value.update(expires_ms="2"),
        lambda value: value.update(expires_ms=True),
        lambda value: value.update(owner=7),
        lambda value: value.update(digest="***"),
    ],
)
def test_a_bad_record_is_refused_without_showing_it(change: object) -> None:
    value = json.loads(write_token(TOKEN))
    change(value)  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"^tokens/x is not an API token as this program writes it$"):
        read_token("tokens/x", json.dumps(value))


def test_tokens_and_keys_survive_and_go_with_their_owner(tmp_path: Path) -> None:
    async def work() -> None:
        store = MirroredStore(SqliteStore(tmp_path / METADATA), tmp_path)
        users = Users(MetadataUsers(store))
        tokens = Tokens(users, MetadataTokens(store), now_ms=lambda: 1)
        await users.create("alice", Secret("open-sesame-42"))
        await users.create("bob", Secret("open-sesame-42"))
        _, text = await tokens.create("alice", scope=SCOPE, lifetime_ms=LIFETIME_MS)
        of_bob, _ = await tokens.create("bob", scope=SCOPE, lifetime_ms=LIFETIME_MS)
        await tokens.rotate_key()
        stored = "".join(each.value for each in (await store.read()).entries.values())
        assert text.reveal() not in stored and text.reveal()[-43:] not in stored

        later_users = Users(MetadataUsers(store))
        later = Tokens(later_users, MetadataTokens(store), now_ms=lambda: 1)
        await later_users.load()
        await later.load()
        assert later.prove(text) is not None
        await later.close()

        await MetadataUsers(store).remove("alice")  # as a command does it while no broker runs
        assert list((await MetadataTokens(store).load()).tokens) == [of_bob.id]
        for each in (tokens, users, later_users, store):
            await each.close()

    asyncio.run(work())


def test_a_damaged_record_stops_the_start_and_names_the_way_out(tmp_path: Path) -> None:
    async def work(key: str, text: str, said: str) -> None:
        store = SqliteStore(tmp_path / f"{len(key)}.sqlite")
        await store.commit(checks={}, puts={key: text})
        with pytest.raises(StorageError, match=said) as raised:
            await MetadataTokens(store).load()
        assert "hidden" not in str(raised.value)
        await store.close()

    asyncio.run(work("tokens/ab", '{"owner":"hidden"}', "tokens/ab is not an API token"))
    for text in ('{"keys":[]}', '{"keys":"hidden"}', "{}", '{"keys":[{"id":"hidden","key":""}]}'):
        asyncio.run(work(KEYS, text, "security/token_keys has no keys"))
