"""The offsets topic in memory, with the gates of `MemoryLog`."""

from __future__ import annotations

from tests.unit.broker.internal.memory_log import MemoryLog

from tailrace.broker.groups.offsets import read_key


class MemoryOffsetsLog(MemoryLog):
    """Its records under the keys of groups and offsets."""

    def newest(self) -> dict[object, bytes | None]:
        """The newest value of every key, as compaction would leave it."""
        return {read_key(record.key or b""): record.value for record in self.records()}
