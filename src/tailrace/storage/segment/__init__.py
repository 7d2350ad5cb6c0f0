"""The segment engine: the default.

On disk a data directory holds one journal, CHECKPOINT and its copy, and a directory per partition with its
segments (`names` lists the files, docs/storage-format.md draws them). In memory:

`log`            one partition: append, read, truncate, trim       the port
`tail`           the newest batches in memory
`segment` `index`  a segment file, its spans and their checksums; planning and checking reads
`commit`         rounds: journal, one sync, acknowledge
`apply`          the segment files follow the journal
`checkpointing` `checkpoint_file`  what lets the journal be used again
`plan` `recovery`  from what a crash left to a directory that serves
`rebuild` `survey` `journal_run` `chain`  the same without a checkpoint
`housekeeping` `retention` `last_seen`  what is done by the clock, and whether it is believed
`compaction` `cleaning`  which records of a compacted log stay, and the rewriting of its segments
`successor` `thinning` `pace`  a segment's new file, a batch's new bytes, and work in short turns
`entry` `journal` `checkpoint` `snapshot` `shape` `names`  formats and pure rules
"""

from tailrace.storage.segment.config import DirectoryConfig
from tailrace.storage.segment.log import SegmentLog
from tailrace.storage.segment.storage import SegmentStorage

__all__ = ["DirectoryConfig", "SegmentLog", "SegmentStorage"]
