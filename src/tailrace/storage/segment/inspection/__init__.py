"""Looking into a data directory from outside: what is there, and whether it is what was written.

Plain synchronous code over real files, for the command line. It opens everything read-only and takes no lock,
so it works on a directory that is being served, on a damaged one and on a copy; damage is reported, never
raised. Formats are read by the engine's own codecs, and what the files should hold is decided by the engine's
own `plan`. Memory is bounded by the journal, by the largest batch and by the index of one segment.

`overview`         `inspect_directory`: everything that headers and small files tell
`verification`     `verify_directory`: every byte
`report`           what is found: facts, problems, notes
`source`           files, read-only
`journal_files`    the journal, and whether a round that counts is missing
`expectation`      CHECKPOINT and journal, and so what every partition should hold
`root` `layout`    which file is what
`stored_index`     the two index files of a segment, and which of them is wrong
`walk`             from batch to batch through a segment
`logs`             which logs there are, whose they are, and the newest state of each
`listing`          every batch of a segment, every round of a journal file
`partition_overview` one partition, by its headers
`partition_check` `segment_check`  every byte of a partition, and of a segment

A directory that is being served changes while it is read. Whatever looks wrong is looked at again if anything
moved in the meantime.
"""

from tailrace.storage.segment.inspection.listing import list_batches, list_rounds
from tailrace.storage.segment.inspection.logs import StoredLog, list_logs
from tailrace.storage.segment.inspection.overview import inspect_directory
from tailrace.storage.segment.inspection.report import Findings, Inspection, Note, Problem, Verification
from tailrace.storage.segment.inspection.verification import bytes_to_verify, verify_directory

__all__ = [
    "Findings",
    "Inspection",
    "Note",
    "Problem",
    "StoredLog",
    "Verification",
    "bytes_to_verify",
    "inspect_directory",
    "list_batches",
    "list_logs",
    "list_rounds",
    "verify_directory",
]
