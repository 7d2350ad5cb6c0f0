"""Users and logins: over real hashing, with a clock and a loop that the tests own."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.model.session import Principal
from tailrace.security import (
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    AuthenticationFailed,
    Authenticator,
    LoginsBusy,
    Secret,
    Step,
    User,
    Users,
)
from tailrace.security.hashing import Hashing
from tailrace.security.mechanism import PASSWORD_MECHANISMS
from tailrace.security.sasl.plain import write_plain
from tailrace.security.sasl.scram_client import ScramClient
from tailrace.security.user import MemoryUsers
from tailrace.security.verifier import ITERATIONS, proves, verifier_of

PASSWORD = Secret("open-sesame-42")
HOST = "10.0.0.1"


class Time:
    """A clock that moves with the waits of the authenticator."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class Rig:
    def __init__(self, time: Time) -> None:
        self.time = time
        self.store = MemoryUsers()
        self.users = Users(self.store)
        self.logins = Authenticator(self.users, monotonic=time)

    async def log_in(
        self, mechanism: str, user: str = "alice", password: Secret = PASSWORD
    ) -> Principal | None:
        login = self.logins.begin(mechanism, host=HOST)
        if mechanism == PLAIN:
            return _principal(await login.step(write_plain(user, password)))
        client = ScramClient(mechanism, user, password)
        challenge = await login.step(client.first())
        assert challenge.authenticated is None
        final = await login.step(client.prove(challenge.data))
        client.check(final.data)
        return _principal(final)


def _principal(step: Step) -> Principal | None:
    return None if step.authenticated is None else step.authenticated.principal


def with_rig(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a loop of its own, with a rig in which alice is known."""
    signature = inspect.signature(test)
    given = [each for name, each in signature.parameters.items() if name != "rig"]

    def run(monkeypatch: pytest.MonkeyPatch, **parameters: Any) -> None:
        async def main() -> None:
            made = Rig(Time())
            monkeypatch.setattr("tailrace.security.authenticator.asyncio.sleep", made.time.sleep)
            if "monkeypatch" in signature.parameters:
                parameters["monkeypatch"] = monkeypatch
            await made.users.create("alice", PASSWORD)
            await test(rig=made, **parameters)
            await made.users.close()

        asyncio.run(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    patch = inspect.Parameter("monkeypatch", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    others = [each for each in given if each.name != "monkeypatch"]
    run.__signature__ = signature.replace(parameters=[patch, *others])  # type: ignore[attr-defined]
    return run


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@with_rig
async def test_a_user_logs_in_by_every_mechanism(rig: Rig, mechanism: str) -> None:
    assert await rig.log_in(mechanism) == Principal("User", "alice")
    assert rig.logins.counts.succeeded == {mechanism: 1}
    assert rig.time.waits == []


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@with_rig
async def test_no_text_and_no_wait_tells_why_a_login_failed(rig: Rig, mechanism: str) -> None:
    await rig.users.create("blocked", PASSWORD)
    await rig.users.set_enabled("blocked", enabled=False)
    said = []
    for user, password in (("alice", Secret("wrong")), ("nobody", PASSWORD), ("blocked", PASSWORD)):
        fresh = Rig(rig.time)
        fresh.users = rig.users
        fresh.logins = Authenticator(rig.users, monotonic=rig.time)
        rig.time.waits.clear()
        with pytest.raises(AuthenticationFailed) as raised:
            await fresh.log_in(mechanism, user, password)
        said.append((str(raised.value), tuple(round(each, 6) for each in rig.time.waits)))
    assert len(set(said)) == 1, said
    assert said[0][1] == (0.1,)
    assert "alice" not in said[0][0]


@with_rig
async def test_the_verifier_of_a_disabled_user_is_proven_by_no_password(rig: Rig) -> None:
    before = rig.users.verifier("alice", SCRAM_SHA_256)
    assert proves(PASSWORD, before)
    await rig.users.set_enabled("alice", enabled=False)
    after = rig.users.verifier("alice", SCRAM_SHA_256)
    assert (after.salt, after.iterations) == (before.salt, before.iterations)
    assert not proves(PASSWORD, after)


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
@with_rig
async def test_the_salt_of_an_unknown_user_survives_a_restart(rig: Rig, mechanism: str) -> None:
    before = rig.users.verifier("nobody", mechanism)
    again = Users(rig.store)
    await again.load()
    assert again.verifier("nobody", mechanism) == before
    assert again.verifier("somebody", mechanism).salt != before.salt
    assert before.iterations == ITERATIONS
    assert len(before.salt) == len(rig.users.verifier("alice", mechanism).salt)
    await again.close()


@with_rig
async def test_guesses_wait_longer_and_the_right_password_does_not(rig: Rig) -> None:
    for _ in range(10):
        with pytest.raises(AuthenticationFailed):
            await rig.log_in(PLAIN, password=Secret("a guess"))
    assert rig.time.waits == sorted(rig.time.waits)
    assert rig.time.waits[-1] > 1
    rig.time.waits.clear()
    assert await rig.log_in(PLAIN) == Principal("User", "alice")
    assert rig.time.waits == []
    assert rig.logins.counts.failed[PLAIN] == 10


@with_rig
async def test_a_malformed_message_counts_as_a_failure(rig: Rig) -> None:
    with pytest.raises(AuthenticationFailed, match="three parts"):
        await rig.logins.begin(PLAIN, host=HOST).step(b"nonsense")
    assert rig.time.waits == [pytest.approx(0.1)]


@with_rig
async def test_a_user_that_is_disabled_during_an_exchange_is_refused(rig: Rig) -> None:
    login = rig.logins.begin(SCRAM_SHA_256, host=HOST)
    client = ScramClient(SCRAM_SHA_256, "alice", PASSWORD)
    proof = client.prove((await login.step(client.first())).data)
    await rig.users.set_enabled("alice", enabled=False)
    with pytest.raises(AuthenticationFailed):
        await login.step(proof)


@with_rig
async def test_a_password_that_was_right_is_not_hashed_again_until_it_changes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = 0

    def counting(*given: object) -> bool:
        nonlocal hashed
        hashed += 1
        return proves(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("tailrace.security.authenticator.proves", counting)
    await rig.log_in(PLAIN)
    await rig.log_in(PLAIN)
    assert hashed == 1
    rig.time.now += 61
    await rig.log_in(PLAIN)
    assert hashed == 2
    with pytest.raises(AuthenticationFailed):
        await rig.log_in(PLAIN, password=Secret("another-one"))
    assert hashed == 3
    await rig.users.set_password("alice", Secret("another-one"))
    with pytest.raises(AuthenticationFailed):
        await rig.log_in(PLAIN)
    await rig.log_in(PLAIN, password=Secret("another-one"))
    assert hashed == 5


@with_rig
async def test_changes_are_told_and_end_who_may_stay(rig: Rig) -> None:
    told: list[str] = []
    rig.users.watch(told.append)
    assert rig.users.may_log_in("alice")
    await rig.users.set_enabled("alice", enabled=False)
    assert not rig.users.may_log_in("alice")
    await rig.users.set_enabled("alice", enabled=True)
    assert rig.users.may_log_in("alice")
    await rig.users.delete("alice")
    assert not rig.users.may_log_in("alice")
    assert told == ["alice"] * 3
    rig.users.unwatch(told.append)


@with_rig
async def test_what_cannot_be_done_to_users(rig: Rig) -> None:
    with pytest.raises(BrokerError, match="exists already"):
        await rig.users.create("alice", PASSWORD)
    for work in (
        rig.users.set_password("nobody", PASSWORD),
        rig.users.set_enabled("nobody", enabled=True),
        rig.users.delete("nobody"),
        rig.users.remove_verifier("nobody", SCRAM_SHA_256),
    ):
        with pytest.raises(BrokerError, match="there is no user 'nobody'") as raised:
            await work
        assert raised.value.code == ErrorCode.RESOURCE_NOT_FOUND
    assert list(rig.users) == ["alice"]


@with_rig
async def test_verifiers_come_and_go_and_the_user_with_the_last_one(rig: Rig) -> None:
    salt = b"0123456789abcdef"
    made = verifier_of(SCRAM_SHA_256, b"s" * 32, salt=salt, iterations=4096)
    await rig.users.put_verifier("carol", made)
    assert rig.users["carol"] == User(name="carol", verifiers={SCRAM_SHA_256: made})
    with pytest.raises(BrokerError, match="has no credentials for SCRAM-SHA-512"):
        await rig.users.remove_verifier("carol", SCRAM_SHA_512)
    await rig.users.remove_verifier("carol", SCRAM_SHA_256)
    assert "carol" not in rig.users
    assert "carol" not in (await rig.store.load()).users


def test_a_store_that_fails_ends_the_node_and_changes_nothing() -> None:
    asyncio.run(_store_that_fails())


async def _store_that_fails() -> None:
    failures: list[BaseException] = []

    class Broken(MemoryUsers):
        async def save(self, user: User, *, fake_key: bytes) -> None:
            raise StorageError("write", "x", "disk gone")

    users = Users(Broken(), on_failure=failures.append)
    with pytest.raises(StorageError):
        await users.create("alice", PASSWORD)
    assert "alice" not in users and len(failures) == 1
    await users.close()


def test_hashing_is_bounded_and_gives_its_places_back() -> None:
    asyncio.run(_hashing_is_bounded())


async def _hashing_is_bounded() -> None:
    hashing = Hashing(threads=1, waiting_max=1)
    go = threading.Event()
    first = asyncio.ensure_future(hashing.run(go.wait))
    second = asyncio.ensure_future(hashing.run(go.wait))
    await asyncio.sleep(0)
    with pytest.raises(LoginsBusy):
        await hashing.run(go.wait)
    go.set()
    assert await first and await second
    assert await hashing.run(lambda: 7) == 7
    hashing.close()
