"""Why a curve bends, as far as the code says so; shown with the figures, also of a report of long ago."""

from __future__ import annotations

REMARKS: dict[str, str] = {
    "partitions": (
        "A request that goes to another partition than the one before it on its connection is read in full: "
        "the shape that a connection remembers is that of one partition. All partitions share one journal "
        "and one sync. A partition has a directory and an open file; a start looks into each, one after the "
        "other, and syncs it: some five milliseconds each, which is where the time to restart bends."
    ),
    "connections": (
        "An idle connection is a socket and its state; no timer and no task belong to it, only a sweep of "
        "all connections every five seconds."
    ),
    "message-size": (
        "Small messages pay for the request. Up to 64 KiB of a partition in one round are written twice, to "
        "the journal and later to the segment; more than that goes to the segment at once, and the journal "
        "holds only its proof, but its segment is synced on its own: that is the step at 100 KB. From 2 MiB "
        "on requests are served one at a time."
    ),
    "consumers": (
        "Every fetch is a request of its own, and its bytes are handed to the socket once per consumer. Who "
        "waits for records is woken by the partition, one callback after the other: the last one in the row "
        "waits for all before it."
    ),
    "log-size": (
        "A start reads the journal above the last checkpoint and looks at the newest segment; older ones are "
        "opened when somebody reads them. After a kill, batches that the journal only refers to are read and "
        "checked: 256 MiB of them at most, since a checkpoint is due by then. A time is looked for segment "
        "by segment from the oldest, by bisection in each index, and then in one batch, which is read whole."
    ),
    "groups": (
        "All positions are in memory, so fetching one does not depend on how many there are; listing goes "
        "through all of them. A start listens first and then reads the offsets topic from its beginning: one "
        "record a group here, more where commits were not compacted yet."
    ),
}
