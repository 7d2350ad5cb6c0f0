"""Sessions of the console without HTTP: how long they last, what ends them, how many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tailrace.http.console_session import IDLE_S, LIFE_S, PER_USER_MAX, ConsoleSessions
from tailrace.model.session import Principal
from tailrace.security import CONSOLE, Authenticated, Secret, Users

ALICE = Authenticated(Principal("User", "alice"), CONSOLE)
BOB = Authenticated(Principal("User", "bob"), CONSOLE)


class Rig:
    def __init__(self, **settings: int) -> None:
        self.now = 1000.0
        self.users = Users()
        self.sessions = ConsoleSessions(self.users, monotonic=lambda: self.now, **settings)


def play(scenario: Callable[[Rig], Awaitable[None]], **settings: int) -> None:
    async def main() -> None:
        rig = Rig(**settings)
        for name in ("alice", "bob"):
            await rig.users.create(name, Secret(f"open sesame {name}"))
        await scenario(rig)
        await rig.users.close()

    asyncio.run(main())


def test_a_session_is_found_by_its_id_alone() -> None:
    async def scenario(rig: Rig) -> None:
        made, session = rig.sessions.open(ALICE)
        other, _ = rig.sessions.open(ALICE)
        assert rig.sessions.find(made) is session
        assert made != other and len(made) >= 43
        for wrong in ("", "x", made[:-1], made + "x", made.lower(), "x" * 10_000, "\ud800"):
            assert rig.sessions.find(wrong) is None

    play(scenario)


def test_an_id_from_elsewhere_never_becomes_a_session() -> None:
    async def scenario(rig: Rig) -> None:
        planted = "A" * 43
        assert rig.sessions.find(planted) is None
        made, _ = rig.sessions.open(ALICE)
        assert made != planted and rig.sessions.find(planted) is None

    play(scenario)


def test_ids_and_csrf_tokens_are_in_no_repr_and_not_in_memory_as_they_are() -> None:
    async def scenario(rig: Rig) -> None:
        made, session = rig.sessions.open(ALICE)
        shown = f"{rig.sessions!r} {session!r} {list(rig.sessions)!r}"
        assert made not in shown and session.csrf.reveal() not in shown
        assert made.encode() not in rig.sessions._sessions and len(next(iter(rig.sessions._sessions))) == 32

    play(scenario)


def test_it_ends_after_half_an_hour_without_use() -> None:
    async def scenario(rig: Rig) -> None:
        made, session = rig.sessions.open(ALICE)
        rig.now += IDLE_S - 1
        assert rig.sessions.find(made) is session
        rig.now += IDLE_S - 1
        assert rig.sessions.find(made) is session
        rig.now += IDLE_S
        assert rig.sessions.find(made) is None and session.ended and len(rig.sessions) == 0

    play(scenario)


def test_what_a_page_does_by_itself_is_no_use() -> None:
    async def scenario(rig: Rig) -> None:
        made, session = rig.sessions.open(ALICE)
        for idle_s in range(60, IDLE_S, 60):
            rig.now += 60
            assert rig.sessions.find(made, idle_s=idle_s) is session
        rig.now += 60
        assert rig.sessions.find(made, idle_s=IDLE_S) is None

    play(scenario)


@pytest.mark.parametrize("idle_s", [-1e9, -1.0, 1e9])
def test_a_page_cannot_lengthen_it_by_what_it_says(idle_s: float) -> None:
    async def scenario(rig: Rig) -> None:
        made, session = rig.sessions.open(ALICE)
        rig.sessions.find(made, idle_s=idle_s)
        assert session.used_at <= rig.now

    play(scenario)


def test_it_ends_twelve_hours_after_its_login_however_much_it_is_used() -> None:
    async def scenario(rig: Rig) -> None:
        made, _ = rig.sessions.open(ALICE)
        for _ in range(LIFE_S // 60 - 1):
            rig.now += 60
            assert rig.sessions.find(made) is not None
        rig.now += 60
        assert rig.sessions.find(made) is None

    play(scenario)


def test_logging_out_ends_this_one_alone() -> None:
    async def scenario(rig: Rig) -> None:
        made, session = rig.sessions.open(ALICE)
        other, _ = rig.sessions.open(ALICE)
        rig.sessions.end(session)
        assert rig.sessions.find(made) is None and rig.sessions.find(other) is not None

    play(scenario)


@pytest.mark.parametrize("change", ["password", "disable", "delete"])
def test_a_change_of_the_user_ends_all_of_its_sessions_and_no_others(change: str) -> None:
    async def scenario(rig: Rig) -> None:
        made = [rig.sessions.open(ALICE)[0] for _ in range(2)]
        bobs, _ = rig.sessions.open(BOB)
        if change == "password":
            await rig.users.set_password("alice", Secret("another word, 42"))
        elif change == "disable":
            await rig.users.set_enabled("alice", enabled=False)
        else:
            await rig.users.delete("alice")
        assert [rig.sessions.find(each) for each in made] == [None, None]
        assert rig.sessions.find(bobs) is not None

    play(scenario)


def test_a_user_that_is_made_again_gets_no_session_of_the_one_before() -> None:
    async def scenario(rig: Rig) -> None:
        made, _ = rig.sessions.open(ALICE)
        await rig.users.delete("alice")
        await rig.users.create("alice", Secret("open sesame alice"))
        assert rig.sessions.find(made) is None

    play(scenario)


def test_enabling_a_user_that_is_enabled_ends_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        made, _ = rig.sessions.open(ALICE)
        await rig.users.set_enabled("alice", enabled=True)
        assert rig.sessions.find(made) is not None

    play(scenario)


def test_sessions_of_a_user_are_bounded_and_the_least_recently_used_goes() -> None:
    async def scenario(rig: Rig) -> None:
        bobs, _ = rig.sessions.open(BOB)
        made = [rig.sessions.open(ALICE)[0] for _ in range(PER_USER_MAX)]
        assert rig.sessions.find(made[0]) is not None
        rig.sessions.open(ALICE)
        assert rig.sessions.find(made[0]) is not None and rig.sessions.find(made[1]) is None
        assert rig.sessions.find(bobs) is not None and len(rig.sessions) == PER_USER_MAX + 1

    play(scenario)


def test_all_sessions_are_bounded() -> None:
    async def scenario(rig: Rig) -> None:
        first, _ = rig.sessions.open(ALICE)
        for _ in range(5):
            rig.sessions.open(BOB)
        assert len(rig.sessions) == 3 and rig.sessions.find(first) is None

    play(scenario, sessions_max=3)


def test_streams_are_told_of_the_end_once() -> None:
    async def scenario(rig: Rig) -> None:
        _, session = rig.sessions.open(ALICE)
        told: list[str] = []
        leaves = lambda: told.append("left")  # noqa: E731
        session.watch(lambda: told.append("stays"))
        session.watch(leaves)
        session.unwatch(leaves)
        session.unwatch(leaves)
        rig.sessions.close()
        assert told == ["stays"]

    play(scenario)


@pytest.mark.parametrize("wrong", ["", "x", "é", "\x00"])
def test_only_its_own_csrf_token_is_accepted(wrong: str) -> None:
    async def scenario(rig: Rig) -> None:
        _, session = rig.sessions.open(ALICE)
        _, other = rig.sessions.open(ALICE)
        assert session.is_csrf(session.csrf.reveal())
        assert not session.is_csrf(wrong) and not session.is_csrf(other.csrf.reveal())

    play(scenario)
