"""The memory engine: a bounded ring per partition. Only a snapshot outlives the process, if one is set.

`engine`  `MemoryStorage`: the rings of one node, and their eviction by age
`log`     `MemoryLog`: one partition behind the storage port
`ring`    the batches of one partition, found by offset, dropped from the front
`extent`  what a read hands out
`option`  what topics may set for it
`snapshot`, `snapshot_file`   all rings as one file, written at an interval and loaded at the start

A ring forgets its oldest batches, whole, by three limits: their bytes (`memory.max.bytes`), their records
(`memory.max.messages`) and their age (`memory.ttl.ms`). The start offset moves with them, so a reader that
fell behind is told OffsetOutOfRange. Retention by time and size tightens those limits where `delete` is on.
`compact` changes nothing here: a ring forgets whatever the key, so it could not keep compaction's promise of
the newest record of every key.
"""

from tailrace.storage.memory.engine import MemoryStorage
from tailrace.storage.memory.log import MemoryLog
from tailrace.storage.memory.snapshot import SNAPSHOT, Snapshots

__all__ = ["SNAPSHOT", "MemoryLog", "MemoryStorage", "Snapshots"]
