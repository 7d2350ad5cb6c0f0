"""Users in the metadata store: they survive, are private, and never appear in an error."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from tailrace.cluster import METADATA, MemoryStore, MetadataUsers, MirroredStore, SqliteStore, StoredMetadata
from tailrace.cluster.image_file import IMAGE
from tailrace.cluster.users import read_user, write_user
from tailrace.model import BrokerError, BrokerId, StorageError
from tailrace.security import SCRAM_SHA_256, SCRAM_SHA_512, Secret, User, Users
from tailrace.security.verifier import make_verifiers, verifier_of

PASSWORD = Secret("open-sesame-42")
SALT = b"0123456789abcdef"


def user(name: str = "alice") -> User:
    made = {
        each: verifier_of(each, b"s" * 32, salt=SALT, iterations=4096)
        for each in (SCRAM_SHA_256, SCRAM_SHA_512)
    }
    return User(name=name, verifiers=made)


def test_a_user_comes_back_as_it_was_stored() -> None:
    for each in (user("a/b,=é"), User(name="x", verifiers=make_verifiers(PASSWORD), enabled=False)):
        assert read_user(f"users/{each.name}", write_user(each)) == each
        assert PASSWORD.reveal() not in write_user(each)


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.pop("enabled"),
        lambda value: value.update(enabled="yes"),
        lambda value: value.update(verifiers={}),
        lambda value: value["verifiers"].update(MD5={}),
        lambda value: value["verifiers"][SCRAM_SHA_256].update(iterations=1),
        lambda value: value["verifiers"][SCRAM_SHA_256].update(iterations=True),
        lambda value: value["verifiers"][SCRAM_SHA_256].update(salt="***"),
        lambda value: value["verifiers"][SCRAM_SHA_256].update(stored_key="c2hvcnQ="),
        lambda value: value["verifiers"][SCRAM_SHA_256].pop("server_key"),
    ],
)
def test_a_bad_record_is_refused_without_showing_it(change: object) -> None:
    value = json.loads(write_user(user()))
    change(value)  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"^users/alice is not a user as this program writes it$"):
        read_user("users/alice", json.dumps(value))


def test_the_first_user_of_a_directory_is_there_after_the_first_start(tmp_path: Path) -> None:
    async def create() -> None:
        store = MirroredStore(SqliteStore(tmp_path / METADATA), tmp_path)
        users = Users(MetadataUsers(store))
        await users.load()
        await users.create("alice", PASSWORD)
        await users.close()
        await store.close()

    async def start() -> None:
        store = MirroredStore(SqliteStore(tmp_path / METADATA), tmp_path)
        metadata = StoredMetadata(store)
        image = await metadata.begin(BrokerId(1))
        assert image.cluster_id
        users = Users(MetadataUsers(store))
        await users.load()
        assert list(users) == ["alice"]
        fake = users.verifier("nobody", SCRAM_SHA_256)
        await users.set_enabled("alice", enabled=False)
        again = Users(MetadataUsers(store))
        await again.load()
        assert not again["alice"].enabled
        assert again.verifier("nobody", SCRAM_SHA_256) == fake
        await users.close()
        await again.close()
        await metadata.close()

    asyncio.run(create())
    asyncio.run(start())
    asyncio.run(start_again(tmp_path))


async def start_again(directory: Path) -> None:
    metadata = StoredMetadata(MirroredStore(SqliteStore(directory / METADATA), directory))
    await metadata.begin(BrokerId(1))
    await metadata.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    async def work() -> None:
        store = MirroredStore(SqliteStore(tmp_path / METADATA), tmp_path)
        await MetadataUsers(store).save(user(), fake_key=b"k" * 32)
        for name in (METADATA, f"{METADATA}-wal", f"{METADATA}-shm"):
            assert mode(tmp_path / name) == 0o600, name
        await store.close()

    before = os.umask(0o022)
    try:
        asyncio.run(work())
        (tmp_path / METADATA).chmod(0o644)  # as an earlier version left it
        (tmp_path / IMAGE).chmod(0o644)
        asyncio.run(work())
    finally:
        os.umask(before)
    assert mode(tmp_path / METADATA) == mode(tmp_path / IMAGE) == 0o600


def test_a_damaged_row_of_a_user_is_reported_without_its_value(tmp_path: Path) -> None:
    path = tmp_path / METADATA

    async def save() -> None:
        store = SqliteStore(path)
        await MetadataUsers(store).save(user(), fake_key=b"k" * 32)
        await store.close()

    async def load() -> None:
        store = SqliteStore(path)
        try:
            await MetadataUsers(store).load()
        finally:
            await store.close()

    asyncio.run(save())
    database = sqlite3.connect(path)
    database.execute("UPDATE entries SET value = value || ' ' WHERE key = 'users/alice'")
    database.commit()
    database.close()
    with pytest.raises(StorageError) as raised:
        asyncio.run(load())
    shown = str(raised.value)
    assert "users/alice" in shown and "not shown" in shown
    assert "stored_key" not in shown


def test_removing_and_losing_races() -> None:
    async def work() -> None:
        store = MemoryStore()
        users = MetadataUsers(store)
        await users.save(user(), fake_key=b"k" * 32)
        await users.remove("alice")
        await users.remove("alice")
        assert not (await users.load()).users
        assert (await users.load()).fake_key == b"k" * 32
        await users.save(user(), fake_key=b"other" * 8)
        assert (await users.load()).fake_key == b"k" * 32

        class Busy(MemoryStore):
            async def commit(self, **_: object) -> int | None:
                return None

        with pytest.raises(BrokerError, match="was changed by others"):
            await MetadataUsers(Busy()).save(user(), fake_key=b"k")

    asyncio.run(work())
