"""The consumer groups by which archives tell how far they have come.

An archive commits, for each partition, the offset up to which its lake has every record, in a group whose
name begins with `tailrace-archive`. Retention that waits for archives looks for these groups (ADR 0018), and
every tool that shows the lag of groups shows the lag of archives.
"""

from __future__ import annotations

ARCHIVE_GROUP = "tailrace-archive"


def is_archive_group(group_id: str) -> bool:
    return group_id.startswith(ARCHIVE_GROUP)
