"""Every store against one suite: what is read, what a commit changes, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tailrace.cluster import ABSENT, Entry, MemoryStore, SqliteStore, Store

Opening = Callable[[], "Store"]


@pytest.fixture(params=["memory", "sqlite"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    """Opens the same store again and again."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "metadata.sqlite")
    memory = MemoryStore()
    return lambda: memory


@asynccontextmanager
async def opened(opening: Opening) -> AsyncIterator[Store]:
    store = opening()
    try:
        yield store
    finally:
        await store.close()


def run(opening: Opening, work: Callable[[Store], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with opened(opening) as store:
            await work(store)

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_a_store_that_was_never_written_is_empty(opening: Opening) -> None:
    async def work(store: Store) -> None:
        found = await store.read()
        assert (found.revision, found.entries) == (0, {})

    run(opening, work)


def test_what_was_committed_is_read_in_the_order_of_keys_by_the_next_opening(opening: Opening) -> None:
    async def write(store: Store) -> None:
        assert await store.commit(checks={}, puts={"b": '{"n":1}', "a": '"ü"'}) == 1
        assert await store.commit(checks={}, puts={"c/1": "[]"}) == 2

    async def look(store: Store) -> None:
        found = await store.read()
        assert found.revision == 2
        assert list(found.entries.items()) == [
            ("a", Entry('"ü"', 1)),
            ("b", Entry('{"n":1}', 1)),
            ("c/1", Entry("[]", 2)),
        ]

    run(opening, write)
    run(opening, look)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("topics/", ["topics/1", "topics/ä"]),
        ("topics/1", ["topics/1"]),
        ("nothing", []),
        ("t", ["topics/1", "topics/ä"]),
    ],
)
def test_a_prefix_selects_keys(opening: Opening, prefix: str, expected: list[str]) -> None:
    async def work(store: Store) -> None:
        await store.commit(
            checks={}, puts=dict.fromkeys(("names/a", "topics/1", "topics/ä", "users/u"), "{}")
        )
        found = await store.read(prefix)
        assert (list(found.entries), found.revision) == (expected, 1)

    run(opening, work)


def test_a_prefix_is_a_text_and_no_pattern(opening: Opening) -> None:
    async def work(store: Store) -> None:
        await store.commit(checks={}, puts=dict.fromkeys(("names/a_b", "names/axb", "names/%"), "{}"))
        assert list((await store.read("names/a_")).entries) == ["names/a_b"]
        assert list((await store.read("names/%")).entries) == ["names/%"]

    run(opening, work)


def test_a_version_is_the_revision_that_wrote_the_key_last(opening: Opening) -> None:
    async def work(store: Store) -> None:
        await store.commit(checks={}, puts={"a": "1", "b": "1"})
        await store.commit(checks={}, puts={"a": "2"})
        assert {key: each.version for key, each in (await store.read()).entries.items()} == {"a": 2, "b": 1}

    run(opening, work)


def test_a_commit_whose_checks_hold_changes_everything(opening: Opening) -> None:
    async def work(store: Store) -> None:
        await store.commit(checks={}, puts={"a": "1", "b": "1"})
        done = await store.commit(checks={"a": 1, "c": ABSENT}, puts={"a": "2", "c": "2"}, deletes=["b"])
        assert done == 2
        assert dict((await store.read()).entries) == {"a": Entry("2", 2), "c": Entry("2", 2)}

    run(opening, work)


@pytest.mark.parametrize("wrong", [{"a": 2}, {"a": ABSENT}, {"c": 1}, {"a": 1, "b": 7}], ids=str)
def test_a_commit_of_which_one_check_fails_changes_nothing(opening: Opening, wrong: dict[str, int]) -> None:
    async def work(store: Store) -> None:
        await store.commit(checks={}, puts={"a": "1", "b": "1"})
        assert await store.commit(checks=wrong, puts={"a": "2", "c": "2"}, deletes=["b"]) is None
        found = await store.read()
        assert found.revision == 1
        assert dict(found.entries) == {"a": Entry("1", 1), "b": Entry("1", 1)}

    run(opening, work)


def test_a_key_that_was_deleted_and_written_again_has_another_version(opening: Opening) -> None:
    async def work(store: Store) -> None:
        await store.commit(checks={}, puts={"a": "1"})
        await store.commit(checks={}, puts={}, deletes=["a"])
        await store.commit(checks={"a": ABSENT}, puts={"a": "1"})
        assert (await store.read()).entries["a"].version == 3
        assert await store.commit(checks={"a": 1}, puts={"a": "2"}) is None

    run(opening, work)


def test_the_revision_goes_on_after_everything_was_deleted(opening: Opening) -> None:
    async def work(store: Store) -> None:
        await store.commit(checks={}, puts={"a": "1"})
        await store.commit(checks={}, puts={}, deletes=["a", "was never there"])
        found = await store.read()
        assert (found.revision, found.entries) == (2, {})

    run(opening, work)
    run(opening, work_after_all_was_deleted)


async def work_after_all_was_deleted(store: Store) -> None:
    assert await store.commit(checks={"a": ABSENT}, puts={"a": "1"}) == 3


def test_of_changes_that_race_exactly_one_wins(opening: Opening) -> None:
    async def work(store: Store) -> None:
        await store.commit(checks={}, puts={"a": "0"})
        results = await asyncio.gather(
            *(store.commit(checks={"a": 1}, puts={"a": str(number)}) for number in range(8))
        )
        assert [each for each in results if each is not None] == [2]

    run(opening, work)


def test_closing_twice_is_harmless(opening: Opening) -> None:
    async def work(store: Store) -> None:
        await store.commit(checks={}, puts={"a": "1"})
        await store.close()

    run(opening, work)
