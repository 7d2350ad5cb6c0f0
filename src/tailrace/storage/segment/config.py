"""Settings and bounds of one data directory."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.model import ConfigError
from tailrace.storage.api import COMMIT, Fsync

_MIB = 1 << 20
JOURNAL_FILE_BYTES_MIN = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryConfig:
    """Every queue has its bound here."""

    fsync: Fsync = COMMIT  # of partitions that do not choose for themselves
    journal_file_bytes: int = 16 * _MIB
    journal_bytes_max: int = 256 * _MIB  # then commits wait for the applier
    checkpoint_bytes: int = 64 * _MIB  # of journal, written since the last checkpoint
    checkpoint_referenced_bytes: int = (
        256 * _MIB
    )  # of segments, proved in the journal since: recovery reads them
    checkpoint_interval_ms: int = 30_000
    round_bytes_max: int = 4 * _MIB  # what one commit round takes at most, but for its first entry
    queue_bytes_max: int = 128 * _MIB  # appended and not yet durable; then appends are refused
    tail_bytes_max: int = 16 * _MIB  # of memory: batches that are applied and kept for readers
    inline_bytes_max: int = 64 * 1024  # per partition and round; more goes by reference
    loose_inline_bytes_max: int = 4 * 1024  # the same where no sync is awaited
    apply_bytes: int = 256 * 1024  # the applier gathers this much, or waits
    apply_delay_ms: int = 50  # this long, whichever comes first
    sync_piece_bytes: int = 8 * _MIB  # segments are synced in pieces of at most this
    reserve_bytes: int = 1 * _MIB  # room made ahead in a segment; grows with it
    free_bytes_min: int = 64 * _MIB  # less free space refuses appends
    index_cache_bytes: int = 64 * _MIB  # indexes of sealed segments in memory
    compaction_keys_max: int = 500_000  # held in memory while a log is compacted, about 150 bytes each
    slow_read_bytes: int = 256 * 1024  # an extent reads at most this at a time, but for a larger batch

    def __post_init__(self) -> None:
        if self.journal_file_bytes < JOURNAL_FILE_BYTES_MIN or self.journal_file_bytes % 4096:
            raise ConfigError(
                f"journal_file_bytes = {self.journal_file_bytes} must be a multiple of 4096, "
                f"at least {JOURNAL_FILE_BYTES_MIN}"
            )
        if self.journal_bytes_max < 3 * self.journal_file_bytes:
            raise ConfigError(
                f"journal_bytes_max = {self.journal_bytes_max} must hold three journal files "
                f"of {self.journal_file_bytes} bytes"
            )

    @property
    def entries_bytes_max(self) -> int:
        """What the entries of one round may take, so that it fits into a journal file with room to spare."""
        return self.journal_file_bytes - 4096

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that can always be journalled inline."""
        return self.entries_bytes_max - 128
