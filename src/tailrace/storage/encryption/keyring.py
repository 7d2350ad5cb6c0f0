"""The data keys of one directory: known ones, new ones, and the files that keep them.

A key is drawn without waiting, and counts when `save` has returned: its first batch is written anywhere only
after that. A key that was read from the files decrypts and never encrypts, so no counter is ever restored.

KEYS is changed in two ways. New keys are appended to both files, each synced. A rewrite replaces KEYS, then
the copy, each as a whole; it repairs what a crash or damage left, and wraps all keys anew if the
key-encryption key is another one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tailrace.model import LogDamaged, StorageError
from tailrace.records import Batch, BatchError, iter_batches
from tailrace.runtime import Disk, File
from tailrace.security.keys import KEY_BYTES, KeyEncryptionKey, UnwrapError
from tailrace.storage.encryption.keys_disk import RESTORE_KEYS, read_keys_file, wrong_key
from tailrace.storage.encryption.keys_file import (
    HEADER_BYTES,
    KEYS,
    KEYS_COPY,
    RECORD_BYTES,
    SEGMENT,
    VALUES,
    KeysFile,
    KeysHeader,
    WrappedKey,
    write_header,
    write_record,
)
from tailrace.storage.encryption.layout import is_encrypted
from tailrace.storage.encryption.stored_batch import BATCHES_MAX, DataKey, NotAuthentic, key_id_of

_OPEN_KEYS_MAX = 4096
_RESERVE_RECORDS = 512
_TEMPORARY = ".tmp"


@dataclass(slots=True)
class _Target:
    """One of the two files, open for appending."""

    path: str
    file: File
    slots: int
    reserved: int


class Keyring:
    """Open one with `Keyring.open`; nothing is written before `rewrite` or `save`."""

    def __init__(
        self, disk: Disk, wrapping: KeyEncryptionKey, *, encrypts: bool, draw: Callable[[int], bytes]
    ) -> None:
        self._disk = disk
        self.wrapping = wrapping
        self.encrypts = encrypts
        self._draw = draw
        self.directory_id = b""
        self.fresh = False  # there are no files yet
        self._unwrapping: dict[int, KeyEncryptionKey] = {}  # of records that another key wrapped
        self._records: dict[int, WrappedKey] = {}
        self._next_id = 1
        self._pending: list[WrappedKey] = []
        self._targets: list[_Target] = []
        self._lock = asyncio.Lock()
        self._open_keys: dict[tuple[int, int, int], DataKey] = {}
        self._writers: dict[tuple[int, int], DataKey] = {}

    def __repr__(self) -> str:
        return f"<Keyring of {len(self._records)} keys under {self.wrapping.key_id}>"

    @classmethod
    async def open(
        cls,
        disk: Disk,
        keys: Sequence[KeyEncryptionKey],
        *,
        encrypts: bool = True,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> Keyring:
        """The keyring of a directory; the first of `keys` is the one that wraps from now on.

        StorageError if another key wrapped what is there, or neither file can be read.
        """
        ring = cls(disk, keys[0], encrypts=encrypts, draw=draw)
        await ring._load({key.key_id: key for key in keys})
        return ring

    async def _load(self, keys: dict[str, KeyEncryptionKey]) -> None:
        found = [await read_keys_file(self._disk, path) for path in (KEYS, KEYS_COPY)]
        if found == [None, None]:
            self.fresh = True
            self.directory_id = self._draw(16)
            return
        files = [file for file in found if isinstance(file, KeysFile)]
        if not files:
            raise StorageError("open", KEYS, "it is unreadable, and so is its copy", hint=RESTORE_KEYS)
        usable = [file for file in files if file.header.wrapped_by in keys]
        if not usable:
            raise wrong_key(files[0].header.wrapped_by, keys)
        self.directory_id = usable[0].header.directory_id
        for file in reversed(usable):  # what KEYS says counts
            if file.header.directory_id == self.directory_id:
                self._take(file, keys[file.header.wrapped_by])

    def _take(self, file: KeysFile, wrapped_by: KeyEncryptionKey) -> None:
        self._records.update(file.records)
        for key_id in file.records:
            self._unwrapping[key_id] = wrapped_by
        self._next_id = max(self._next_id, file.header.next_id, *(key_id + 1 for key_id in file.records), 1)

    # ---- what is there

    def __len__(self) -> int:
        return len(self._records)

    def records(self) -> Iterable[WrappedKey]:
        """All of them, in no order."""
        return list(self._records.values())

    # ---- keys

    def cipher(self, life: int) -> LogCipher:
        """What encrypts and decrypts the batches of one log."""
        return LogCipher(self, life)

    def writer(self, life: int, base: int) -> DataKey:
        """The key of this process for appends to a segment; a new one if there is none, or it is used up."""
        key = self._writers.get((life, base))
        if key is None or key.counter >= BATCHES_MAX:
            key = self._writers[life, base] = self.new_key(life, base)
        return key

    def forget_writers(self, life: int, *, below: int) -> None:
        """Nothing is appended any more to the segments of a log that begin below an offset."""
        for place in [place for place in self._writers if place[0] == life and place[1] < below]:
            del self._writers[place]

    def new_key(self, life: int, base: int) -> DataKey:
        """A key that no other batch was encrypted by; save before its first batch is written anywhere."""
        record, secret = self._draw_key(SEGMENT, life, base)
        return DataKey(secret, key_id=record.key_id, directory_id=self.directory_id, life=life, base=base)

    def _draw_key(self, purpose: int, life: int, base: int) -> tuple[WrappedKey, bytes]:
        secret = self._draw(KEY_BYTES)
        record = WrappedKey(self._next_id, purpose, life, base, b"")
        place = record.place(self.directory_id)
        record = replace(record, wrapped=self.wrapping.wrap(secret, place, draw=self._draw))
        self._next_id += 1
        self._records[record.key_id] = record
        self._unwrapping[record.key_id] = self.wrapping
        self._pending.append(record)
        return record, secret

    def value_key(self) -> int:
        """The key for values of the metadata: the newest one, else a new one, which is to be saved first."""
        known = [record.key_id for record in self._records.values() if record.purpose == VALUES]
        return max(known) if known else self._draw_key(VALUES, 0, 0)[0].key_id

    def value_secret(self, key_id: int) -> bytes:
        """A key for values itself; NotAuthentic if it is unknown or another's."""
        record = self._records.get(key_id)
        if record is None or record.purpose != VALUES:
            raise NotAuthentic(f"data key {key_id} for values is not in {KEYS}")
        return self._secret(record)

    def key(self, key_id: int, life: int, base: int) -> DataKey:
        """A known key, to decrypt; NotAuthentic if it is unknown or another segment's."""
        found = self._open_keys.get((key_id, life, base))
        if found is None:
            record = self._records.get(key_id)
            if record is None:
                raise NotAuthentic(f"data key {key_id} is not in {KEYS}")
            if (record.purpose, record.life, record.base) != (SEGMENT, life, base):
                raise NotAuthentic(f"data key {key_id} belongs to another segment")
            secret = self._secret(record)
            found = DataKey(secret, key_id=key_id, directory_id=self.directory_id, life=life, base=base)
            if len(self._open_keys) >= _OPEN_KEYS_MAX:
                del self._open_keys[next(iter(self._open_keys))]
            self._open_keys[key_id, life, base] = found
        return found

    def _secret(self, record: WrappedKey) -> bytes:
        try:
            return self._unwrapping[record.key_id].unwrap(record.wrapped, record.place(self.directory_id))
        except UnwrapError as error:
            raise NotAuthentic(f"data key {record.key_id} in {KEYS}: {error}") from None

    # ---- the files

    @property
    def unsaved(self) -> bool:
        """Whether a key was drawn that no file holds yet."""
        return bool(self._pending)

    async def save(self) -> None:
        """Make every key that was drawn durable; OSError if there is no room, SyncError."""
        while self._pending:
            async with self._lock:
                await self._append()

    async def _append(self) -> None:
        new = list(self._pending)
        if not new:
            return
        data = b"".join(map(write_record, new))
        for target in self._targets:
            end = HEADER_BYTES + (target.slots + len(new)) * RECORD_BYTES
            if end > target.reserved:
                wanted = end + _RESERVE_RECORDS * RECORD_BYTES
                await target.file.reserve(wanted)
                target.reserved = wanted
        for target in self._targets:
            await target.file.write(HEADER_BYTES + target.slots * RECORD_BYTES, [data], sync=True)
        for target in self._targets:
            target.slots += len(new)
        del self._pending[: len(new)]

    async def rewrite(self, *, keep: Callable[[WrappedKey], bool] | None = None) -> None:
        """Replace both files; without the keys that are not to be kept."""
        async with self._lock:
            await self._replace(self.wrapping, keep)

    async def rewrap(self, wrapping: KeyEncryptionKey) -> None:
        """Replace both files by ones that another key-encryption key wraps. The rename of KEYS decides."""
        async with self._lock:
            await self._replace(wrapping, None)

    async def _replace(self, wrapping: KeyEncryptionKey, keep: Callable[[WrappedKey], bool] | None) -> None:
        gone = [key_id for key_id, record in self._records.items() if keep and not keep(record)]
        for key_id in gone:
            del self._records[key_id]
            del self._unwrapping[key_id]
        new = {key_id: self._rewrapped(record, wrapping) for key_id, record in self._records.items()}
        header = KeysHeader(self.directory_id, wrapping.key_id, self._next_id)
        count = len(self._pending)
        data = b"".join((write_header(header), *map(write_record, new.values())))
        files = []
        for path in (KEYS, KEYS_COPY):
            files.append(await self._write(path, data))
            if path == KEYS:
                self.wrapping = wrapping
        self._targets = [
            _Target(path, file, len(new), len(data))
            for path, file in zip((KEYS, KEYS_COPY), files, strict=True)
        ]
        for record in [record for record in self._records.values() if record.key_id not in new]:
            new[record.key_id] = self._rewrapped(record, wrapping)  # drawn meanwhile
            self._pending = [new.get(each.key_id, each) for each in self._pending]
        self._records = new
        self._unwrapping = dict.fromkeys(new, wrapping)
        del self._pending[:count]
        self.fresh = False

    async def write_into(self, directory: str) -> None:
        """Write the keys that are known now as another directory's KEYS; its bytes are not synced."""
        header = KeysHeader(self.directory_id, self.wrapping.key_id, self._next_id)
        file = await self._disk.create(f"{directory}/{KEYS}")
        await file.write(0, [write_header(header), *map(write_record, self._records.values())])
        file.close()

    def _rewrapped(self, record: WrappedKey, wrapping: KeyEncryptionKey) -> WrappedKey:
        if self._unwrapping[record.key_id] is wrapping:
            return record
        place = record.place(self.directory_id)
        try:
            secret = self._unwrapping[record.key_id].unwrap(record.wrapped, place)
        except UnwrapError as error:
            raise StorageError(
                "rewrap", KEYS, f"data key {record.key_id}: {error}", hint=RESTORE_KEYS
            ) from None
        return replace(record, wrapped=wrapping.wrap(secret, place, draw=self._draw))

    async def _write(self, path: str, data: bytes) -> File:
        file = await self._disk.create(path + _TEMPORARY)
        await file.write(0, [data], sync=True)
        await self._disk.rename(path + _TEMPORARY, path)
        await self._disk.sync_directory("")
        return file


class LogCipher:
    """Encrypts and decrypts the batches of one life of one partition."""

    __slots__ = ("_ring", "life")

    def __init__(self, ring: Keyring, life: int) -> None:
        self._ring = ring
        self.life = life

    @property
    def encrypts(self) -> bool:
        """Whether what is written from now on is encrypted; what was is decrypted all the same."""
        return self._ring.encrypts

    def encrypt(self, batch: Batch, base: int) -> Batch:
        """The stored form of a batch of the segment `base`."""
        return self._ring.writer(self.life, base).encrypt(batch)

    def new_key(self, base: int) -> DataKey:
        """A key for a segment that is written anew."""
        return self._ring.new_key(self.life, base)

    async def save(self) -> None:
        """Make the keys that were drawn durable."""
        await self._ring.save()

    def decrypt(self, batch: Batch, base: int) -> Batch:
        """The batch as it was produced; LogDamaged if it is not what was encrypted in this place."""
        if not is_encrypted(batch):
            return batch
        try:
            return self._ring.key(key_id_of(batch), self.life, base).decrypt(batch)
        except NotAuthentic as error:
            raise LogDamaged(f"segment {base}: {error}. It is kept and not served") from None

    def decrypt_run(self, data: memoryview, base: int, *, first: int, end: int) -> memoryview:
        """Stored batches that lie one after the other, as they were produced.

        They must ascend from the offset `first` to below `end`: LogDamaged if one is out of its place, is not
        encrypted, or is not what was.
        """
        found: list[memoryview] = []
        try:
            for stored in iter_batches(data):
                if not is_encrypted(stored) or stored.base_offset < first or stored.next_offset > end:
                    raise LogDamaged(
                        f"segment {base}: the batch at offset {stored.base_offset} was not written "
                        "in its place. It is kept and not served"
                    )
                found.append(self.decrypt(stored, base).data)
                first = stored.next_offset
        except BatchError as error:
            raise LogDamaged(f"segment {base}: {error}") from None
        return found[0] if len(found) == 1 else memoryview(b"".join(found))
