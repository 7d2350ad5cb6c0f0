"""API tokens: how they are proven, when they end, and the server keys under which they are stored."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.model.scope import read_scope
from tailrace.model.session import Principal
from tailrace.security import PLAIN, AuthenticationFailed, Authenticator, Secret, Tokens, Users
from tailrace.security.api_token import LIFETIME_MS, LIFETIME_MS_MAX, ApiToken, MemoryTokens, id_of, new_token
from tailrace.security.sasl.plain import write_plain
from tailrace.security.tokens import OWNER_TOKENS_MAX

PASSWORD = Secret("open-sesame-42")
SCOPE = read_scope(["read:topic:orders"])
HOUR_MS = 3_600_000


class Counted(MemoryTokens):
    """A store that counts what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.saves = 0

    async def save(self, token: ApiToken) -> None:
        self.saves += 1
        await super().save(token)


class Rig:
    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.users = Users()
        self.store = Counted()
        self.tokens = Tokens(self.users, self.store, now_ms=lambda: self.now_ms)
        self.logins = Authenticator(self.users, tokens=self.tokens, monotonic=lambda: 0.0)

    async def create(self, owner: str = "alice", lifetime_ms: int = LIFETIME_MS) -> tuple[ApiToken, Secret]:
        return await self.tokens.create(owner, scope=SCOPE, lifetime_ms=lifetime_ms)

    async def settle(self) -> None:
        await self.tokens.close()


def with_rig(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a loop of its own, with a rig in which alice is known."""
    signature = inspect.signature(test)

    def run(monkeypatch: pytest.MonkeyPatch, **parameters: Any) -> None:
        async def main() -> None:
            async def no_wait(_: float) -> None:
                return

            monkeypatch.setattr("tailrace.security.authenticator.asyncio.sleep", no_wait)
            rig = Rig()
            await rig.users.create("alice", PASSWORD)
            await test(rig=rig, **parameters)
            await rig.settle()
            await rig.users.close()

        asyncio.run(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    patch = inspect.Parameter("monkeypatch", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [each for name, each in signature.parameters.items() if name != "rig"]
    run.__signature__ = signature.replace(parameters=[patch, *given])  # type: ignore[attr-defined]
    return run


# ---- proving


@with_rig
async def test_a_token_proves_its_owner_within_its_scope(rig: Rig) -> None:
    made, text = await rig.create()
    assert text.reveal().startswith(f"trt_{made.id}_") and len(text.reveal()) == 4 + 16 + 1 + 43
    for found in (
        await rig.logins.check_bearer(text, host="h"),
        await rig.logins.check("token", text, host="h", mechanism="Basic"),
        (await rig.logins.begin(PLAIN, host="h").step(write_plain("token", text))).authenticated,
    ):
        assert found is not None
        assert found.principal == Principal("User", "alice")
        assert (found.scope, found.token_id, found.expires_at_ms) == (SCOPE, made.id, made.expires_ms)
        assert found.mechanism == "token"
    assert rig.logins.counts.succeeded == {"token": 3}


@with_rig
async def test_neither_store_nor_texts_have_the_token(rig: Rig) -> None:
    made, text = await rig.create()
    secret = text.reveal().rpartition(made.id)[2]
    assert secret not in repr(made) + repr(rig.tokens) + repr(await rig.store.load())
    assert made.digest.hex() not in repr(made)


async def refused(rig: Rig, text: str) -> str:
    with pytest.raises(AuthenticationFailed) as raised:
        await rig.logins.check_bearer(Secret(text), host="h")
    return str(raised.value)


@with_rig
async def test_no_text_tells_why_a_token_is_refused(rig: Rig) -> None:
    made, text = await rig.create()
    word = text.reveal()
    last = "A" if word[-2] != "A" else "B"
    said = {
        await refused(rig, each)
        for each in (
            word[:-2] + last + word[-1],  # another secret
            word[:-1],
            word + "A",
            word.replace(made.id, "0" * 16),
            f"trt_{made.id}_",
            f"trt_{made.id}",
            new_token()[1].reveal(),
            "trt_",
            "",
            word.upper(),
            f" {word}",
        )
    }
    rig.now_ms = made.expires_ms
    said.add(await refused(rig, word))
    rig.now_ms = made.created_ms
    await rig.users.set_enabled("alice", enabled=False)
    said.add(await refused(rig, word))
    await rig.users.set_enabled("alice", enabled=True)
    assert (await rig.logins.check_bearer(text, host="h")).token_id == made.id
    await rig.tokens.revoke(made.id)
    said.add(await refused(rig, word))
    assert len(said) == 1 and made.id not in said.pop()


@with_rig
async def test_the_user_token_has_no_password(rig: Rig) -> None:
    with pytest.raises(BrokerError, match="reserved"):
        await rig.users.create("token", PASSWORD)
    with pytest.raises(AuthenticationFailed, match="API token"):
        await rig.logins.check("token", PASSWORD, host="h", mechanism=PLAIN)


@pytest.mark.parametrize("text", ["trt_00ff00ff00ff00ff_" + "x" * 43])
def test_the_id_is_read_from_a_whole_token_only(text: str) -> None:
    assert id_of(Secret(text)) == "00ff00ff00ff00ff"
    for bad in (text[:-1], text + "x", text + "\n", text.replace("trt", "TRT"), text.replace("00", "0g")):
        assert id_of(Secret(bad)) is None


# ---- lives


@with_rig
async def test_tokens_end_with_their_owner_and_do_not_come_back_with_its_name(rig: Rig) -> None:
    ended: list[str] = []
    rig.tokens.watch(ended.append)
    made, text = await rig.create()
    await rig.users.create("bob", PASSWORD)
    other, _ = await rig.create("bob")
    await rig.users.delete("alice")
    assert not rig.tokens.is_live(made.id)
    await rig.users.create("alice", PASSWORD)
    await refused(rig, text.reveal())
    await rig.settle()
    assert list((await rig.store.load()).tokens) == [other.id]
    assert ended == [made.id]


@with_rig
async def test_a_use_that_is_being_written_does_not_bring_a_token_back(rig: Rig) -> None:
    made, text = await rig.create()
    assert rig.tokens.prove(text) is not None  # its use is written in the background
    await rig.tokens.revoke(made.id)
    await rig.settle()
    assert not rig.tokens and not (await rig.store.load()).tokens
    made, text = await rig.create()
    assert rig.tokens.prove(text) is not None
    await rig.users.delete("alice")
    await rig.settle()
    assert not rig.tokens and not (await rig.store.load()).tokens


@with_rig
async def test_a_password_that_changes_leaves_tokens_alone(rig: Rig) -> None:
    _, text = await rig.create()
    await rig.users.set_password("alice", Secret("another-word-7"))
    assert rig.tokens.prove(text) is not None


@with_rig
async def test_the_last_use_is_written_once_an_hour(rig: Rig) -> None:
    made, text = await rig.create()
    for _ in range(5):
        assert rig.tokens.prove(text) is not None
    await rig.settle()
    assert rig.store.saves == 2 and rig.tokens[made.id].used_ms == rig.now_ms
    rig.now_ms += HOUR_MS - 1
    assert rig.tokens.prove(text) is not None
    await rig.settle()
    assert rig.store.saves == 2
    rig.now_ms += 1
    assert rig.tokens.prove(text) is not None
    await rig.settle()
    assert rig.store.saves == 3


@pytest.mark.parametrize("lifetime_ms", [-1, 0, 59_999, LIFETIME_MS_MAX + 1])
@with_rig
async def test_a_token_lives_for_a_year_at_most(rig: Rig, lifetime_ms: int) -> None:
    with pytest.raises(BrokerError, match="365 days"):
        await rig.create(lifetime_ms=lifetime_ms)
    assert (await rig.create(lifetime_ms=LIFETIME_MS_MAX))[0].expires_ms == rig.now_ms + LIFETIME_MS_MAX


@with_rig
async def test_a_user_has_a_bounded_number_of_tokens_and_those_over_make_room(rig: Rig) -> None:
    for _ in range(OWNER_TOKENS_MAX):
        made, _ = await rig.create()
    with pytest.raises(BrokerError, match="no more may be created") as raised:
        await rig.create()
    assert raised.value.code == ErrorCode.POLICY_VIOLATION
    rig.now_ms = made.expires_ms
    await rig.create()
    assert len(rig.tokens) == 1


@with_rig
async def test_what_cannot_be_done_to_tokens(rig: Rig) -> None:
    with pytest.raises(BrokerError, match="there is no user 'bob'"):
        await rig.create("bob")
    with pytest.raises(BrokerError, match="no API token of this id"):
        await rig.tokens.revoke("0" * 16)
    with pytest.raises(BrokerError, match="printable"):
        await rig.tokens.create("alice", scope=SCOPE, lifetime_ms=LIFETIME_MS, label="a\nb")


@with_rig
async def test_tokens_survive_a_restart_and_orphans_do_not(rig: Rig) -> None:
    made, text = await rig.create()
    stored = (await rig.store.load()).tokens[made.id]
    await rig.store.save(replace(stored, id="f" * 16, owner="gone"))
    again = Tokens(rig.users, rig.store, now_ms=lambda: rig.now_ms)
    await again.load()
    assert list(again) == [made.id] and again.prove(text) is not None
    await again.close()
    assert list((await rig.store.load()).tokens) == [made.id]


# ---- server keys


@with_rig
async def test_a_rotation_leaves_tokens_alone_and_a_use_moves_them(rig: Rig) -> None:
    made, text = await rig.create()
    assert await rig.tokens.rotate_key() == 1
    assert rig.tokens.prove(text) is not None
    await rig.settle()
    moved = rig.tokens[made.id]
    assert moved.key_id != made.key_id and moved.digest != made.digest
    assert await rig.tokens.rotate_key() == 1  # nothing is left under the first
    assert rig.tokens.prove(text) is not None
    await rig.settle()
    assert len((await rig.store.load()).keys) == 2


@with_rig
async def test_a_rotation_that_would_end_tokens_is_refused_unless_told(rig: Rig) -> None:
    ended: list[str] = []
    rig.tokens.watch(ended.append)
    idle, _ = await rig.create()
    used, text = await rig.create()
    await rig.tokens.rotate_key()
    assert rig.tokens.prove(text) is not None
    await rig.settle()
    with pytest.raises(BrokerError, match="1 tokens were not used"):
        await rig.tokens.rotate_key()
    await rig.tokens.rotate_key(drop=True)
    assert list(rig.tokens) == [used.id] and ended == [idle.id]


def test_a_store_that_fails_ends_the_node_and_changes_nothing() -> None:
    failures: list[BaseException] = []

    class Broken(MemoryTokens):
        async def save(self, token: ApiToken) -> None:
            raise StorageError("write", "x", "disk gone")

    async def main() -> None:
        users = Users()
        await users.create("alice", PASSWORD)
        tokens = Tokens(users, Broken(), now_ms=lambda: 0, on_failure=failures.append)
        with pytest.raises(StorageError):
            await tokens.create("alice", scope=SCOPE, lifetime_ms=LIFETIME_MS)
        assert not tokens and len(failures) == 1
        await users.close()

    asyncio.run(main())
