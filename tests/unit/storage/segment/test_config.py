"""Settings of a data directory: which are refused, and what the message says."""

from __future__ import annotations

import pytest

from tailrace.model import ConfigError
from tailrace.storage import COMMIT, OS, Fsync
from tailrace.storage.segment import DirectoryConfig


def test_the_defaults_stand() -> None:
    config = DirectoryConfig()
    assert config.fsync == COMMIT
    assert config.batch_bytes_max < config.journal_file_bytes
    assert config.round_bytes_max < config.batch_bytes_max


@pytest.mark.parametrize("size", [0, -4096, 4096, 16 * 1024 - 4096, 16 * 1024 + 1, 20_000])
def test_a_journal_file_has_whole_pages_and_a_least_size(size: int) -> None:
    with pytest.raises(ConfigError, match=f"journal_file_bytes = {size} .* multiple of 4096"):
        DirectoryConfig(journal_file_bytes=size)


def test_the_journal_holds_three_files() -> None:
    with pytest.raises(ConfigError, match="journal_bytes_max = 196607 must hold three"):
        DirectoryConfig(journal_file_bytes=1 << 16, journal_bytes_max=3 * (1 << 16) - 1)
    assert DirectoryConfig(journal_file_bytes=1 << 16, journal_bytes_max=3 * (1 << 16), round_bytes_max=4096)


def test_the_largest_batch_fits_into_a_journal_file() -> None:
    config = DirectoryConfig(
        journal_file_bytes=16 * 1024, journal_bytes_max=3 * 16 * 1024, round_bytes_max=4096
    )
    assert 0 < config.batch_bytes_max <= 16 * 1024 - 512 - 40 - 28


@pytest.mark.parametrize(
    ("text", "fsync"),
    [("commit", COMMIT), ("os", OS), ("interval:1", Fsync(1)), ("interval:200", Fsync(200))],
)
def test_fsync_is_read_as_it_is_written(text: str, fsync: Fsync) -> None:
    assert Fsync.parse(text) == fsync
    assert str(fsync) == text
    assert fsync.awaited == (text == "commit")


@pytest.mark.parametrize(
    "text",
    ["", "Commit", "interval", "interval:", "interval:0", "interval:-5", "interval:1.5", "os:1", "never"],
)
def test_another_fsync_is_refused_with_the_choices(text: str) -> None:
    with pytest.raises(ConfigError, match=r"commit, interval:<ms> .*or os"):
        Fsync.parse(text)
