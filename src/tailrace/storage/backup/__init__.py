"""Backups of a data directory, and the way back.

    DIR/
        LOCK                        held by the one that writes here
        20261118T013000Z/           a generation, named by the time when it began (UTC)
            MANIFEST.json           every file with its size and SHA-256; written last
            data/                   the files of a data directory, read-only
        latest -> 20261118T013000Z  the newest whole generation
        partial/                    a backup that has not ended; the next one goes on from it

A generation is whole, or it does not exist: `partial` gets its name when the manifest is in it. What has not
changed since the generation before is a hard link to that one's file. No file is shared with the data
directory that was backed up, because one bad sector would damage both.

`manifest`   the format of MANIFEST.json
`catalogue`  the generations of a directory: which there are, which is the newest, which go
`source`     what is to be copied: the cut of a running broker, or a data directory that nobody serves
`copying`    one file, at a bounded pace
`making`     a new generation
`checking`   whether a generation is what its manifest says
`restoring`  from a generation to a data directory

Plain synchronous code, for the command line: nothing here runs in a broker.
"""

from tailrace.storage.backup.catalogue import BackupError, Catalogue, Generation
from tailrace.storage.backup.checking import check_generation
from tailrace.storage.backup.copying import Pace
from tailrace.storage.backup.making import AtRest, BackupPlan, Held, Made, make_generation, plan_backup
from tailrace.storage.backup.manifest import FileEntry, Manifest
from tailrace.storage.backup.restoring import check_target, restore
from tailrace.storage.backup.source import Source, cut_source, directory_source

__all__ = [
    "AtRest",
    "BackupError",
    "BackupPlan",
    "Catalogue",
    "FileEntry",
    "Generation",
    "Held",
    "Made",
    "Manifest",
    "Pace",
    "Source",
    "check_generation",
    "check_target",
    "cut_source",
    "directory_source",
    "make_generation",
    "plan_backup",
    "restore",
]
