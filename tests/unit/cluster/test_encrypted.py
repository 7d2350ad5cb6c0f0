"""Secrets in the metadata of an encrypted directory: not in any file, and back for those who have the key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tailrace.cluster import METADATA, MirroredStore, SqliteStore
from tailrace.cluster.encrypted import EncryptedStore
from tailrace.model import StorageError
from tailrace.runtime import RealDisk
from tailrace.security.keys import KeyEncryptionKey
from tailrace.storage.encryption.keyring import Keyring
from tailrace.storage.encryption.secret_value import SecretValues, is_secret

KEY, NEW = (KeyEncryptionKey(bytes([number]) * 32) for number in (1, 2))
ALICE, SALTS, TOPIC = "users/alice", "security/fake_salts", "names/orders"
SECRET = '{"verifiers":"very secret"}'


def run(
    path: Path,
    work: Callable[[EncryptedStore], Awaitable[None]],
    *keys: KeyEncryptionKey,
    enabled: bool = True,
) -> None:
    async def body() -> None:
        disk = RealDisk(str(path))
        ring = await Keyring.open(disk, keys or (KEY,), encrypts=enabled)
        await ring.rewrite()
        store = EncryptedStore(
            MirroredStore(SqliteStore(path / METADATA), path), await SecretValues.open(ring)
        )
        await store.encrypt_rest()
        try:
            await work(store)
        finally:
            await store.close()
            disk.close()

    asyncio.run(body())


async def put(store: EncryptedStore) -> None:
    puts = {ALICE: SECRET, SALTS: SECRET, TOPIC: '{"topic":"plain"}'}
    assert await store.commit(checks={}, puts=puts)


async def look(store: EncryptedStore) -> None:
    entries = (await store.read()).entries
    assert {key: each.value for key, each in entries.items()} == {
        ALICE: SECRET,
        SALTS: SECRET,
        TOPIC: '{"topic":"plain"}',
    }
    assert list((await store.read("users/")).entries) == [ALICE]


def shown(path: Path) -> list[str]:
    return [each.name for each in path.rglob("*") if each.is_file() and b"very secret" in each.read_bytes()]


def test_no_file_holds_them_and_the_key_brings_them_back(tmp_path: Path) -> None:
    run(tmp_path, put)
    assert (tmp_path / "cluster.json").exists() and shown(tmp_path) == []
    run(tmp_path, look)


def test_they_stay_readable_over_a_rotation_and_when_it_is_turned_off(tmp_path: Path) -> None:
    run(tmp_path, put)
    run(tmp_path, look, NEW, KEY)
    run(tmp_path, look, NEW)
    run(tmp_path, look, NEW, enabled=False)


def test_what_was_plain_is_encrypted_by_the_next_start(tmp_path: Path) -> None:
    async def begin() -> None:
        store = MirroredStore(SqliteStore(tmp_path / METADATA), tmp_path)
        await store.commit(checks={}, puts={ALICE: SECRET, SALTS: SECRET, TOPIC: '{"topic":"plain"}'})
        await store.close()

    asyncio.run(begin())
    assert METADATA in shown(tmp_path)
    run(tmp_path, look)

    async def stored() -> list[str]:
        store = SqliteStore(tmp_path / METADATA)
        values = [each.value for key, each in (await store.read()).entries.items() if key != TOPIC]
        await store.close()
        return values

    assert all(map(is_secret, asyncio.run(stored())))


def test_a_value_under_another_name_or_with_another_bit_is_refused(tmp_path: Path) -> None:
    async def work(store: EncryptedStore) -> None:
        values = store._values
        text = values.encrypt(ALICE, SECRET)
        assert values.decrypt(ALICE, text) == SECRET != text
        assert values.encrypt(ALICE, SECRET) != text
        for name, changed in (
            ("users/bob", text),
            (ALICE, text[:-4] + "A" + text[-3:]),
            (ALICE, text[:-9] + '"}'),
        ):
            if changed != text or name != ALICE:
                with pytest.raises(StorageError, match="not what was encrypted"):
                    values.decrypt(name, changed)

    run(tmp_path, work)
