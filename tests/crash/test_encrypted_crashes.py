"""Encryption at rest on the simulated disk: crashes at random calls, and builds with one of its rules broken.

After every life all files are searched: for plain values, and for two batches under one key and nonce.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tailrace.records import Batch
from tailrace.storage.encryption.keyring import Keyring
from tailrace.storage.encryption.stored_batch import DataKey
from tailrace.storage.segment.entry import Append, Entry, write_entry
from tailrace.testing.crashes import Options, play, play_flipped

pytestmark = pytest.mark.usefixtures("untraced")

HISTORIES = 60
FULL_HISTORIES = 3000
BROKEN_SEEDS = 80

Break = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def play_all(count: int) -> int:
    found = 0
    for seed in range(count):
        options = Options(encrypted=True, transactions=seed % 3 == 1, rebuild=seed % 3 == 2)
        history, failed = play(seed, options)
        assert failed is None, f"seed {seed}: {failed.error}"
        found += history.counts["ciphertexts"]
    return found


def test_nothing_acknowledged_is_lost_and_nothing_is_told() -> None:
    assert play_all(HISTORIES) > 10 * HISTORIES


@pytest.mark.heavy
def test_the_same_for_thousands_of_histories() -> None:
    play_all(FULL_HISTORIES)


def test_a_flipped_bit_is_masked_or_reported() -> None:
    outcomes = {"flips masked": 0, "flips reported": 0}
    for seed in range(HISTORIES):
        options = Options(encrypted=True, faults=False, loose=False, flip=True)
        history, failed = play_flipped(seed, options)
        assert failed is None, f"seed {seed}: {failed.error}"
        for outcome in outcomes:
            outcomes[outcome] += history.counts[outcome]
    assert all(outcomes.values()), outcomes


# ---- broken builds


def a_counter_begins_again_after_a_start(patch: pytest.MonkeyPatch) -> None:
    real = Keyring.writer

    def writer(self: Keyring, life: int, base: int) -> DataKey:
        if (life, base) not in self._writers:
            for record in self.records():
                if (record.life, record.base) == (life, base):
                    self._writers[life, base] = self.key(record.key_id, life, base)
        return real(self, life, base)

    patch.setattr(Keyring, "writer", writer)


def the_nonce_is_the_offset(patch: pytest.MonkeyPatch) -> None:
    real = DataKey.encrypt

    def encrypt(self: DataKey, batch: Batch) -> Batch:
        self.counter = batch.base_offset
        return real(self, batch)

    patch.setattr(DataKey, "encrypt", encrypt)


def a_key_is_not_saved_before_its_round(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keyring, "unsaved", False)


def only_one_file_of_keys_is_written(patch: pytest.MonkeyPatch) -> None:
    real = Keyring._append

    async def append(self: Keyring) -> None:
        targets, self._targets = self._targets, self._targets[:1]
        try:
            await real(self)
        finally:
            self._targets = targets

    patch.setattr(Keyring, "_append", append)


def the_journal_holds_plain_batches(patch: pytest.MonkeyPatch) -> None:
    def write_plain(entry: Entry, parts: list[Any]) -> None:
        if isinstance(entry, Append):
            stored, entry.stored = entry.stored, entry.batch
            write_entry(entry, parts)
            entry.stored = stored
        else:
            write_entry(entry, parts)

    patch.setattr("tailrace.storage.segment.commit.write_entry", write_plain)


BROKEN: list[Break] = [
    a_counter_begins_again_after_a_start,
    the_nonce_is_the_offset,
    a_key_is_not_saved_before_its_round,
    only_one_file_of_keys_is_written,
    the_journal_holds_plain_batches,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda each: each.__name__)
def test_a_broken_build_is_caught(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    assert any(play(seed, Options(encrypted=True))[1] is not None for seed in range(BROKEN_SEEDS))
