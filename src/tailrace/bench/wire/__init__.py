"""Load over raw sockets, so that the broker and not the client is the limit.

`ring`        requests that are built once and sent over and over
`kafka`       rings and readers for Kafka's Produce and Fetch
`reader`      counts the replies in a byte stream, and looks at nothing else
`driver`      sends rings over many connections with a window each, and times every reply
`latency`     percentiles
`accounting`  processor time and memory of a process, alone or with all that it started
`topic`       topics for a load: made, filled, deleted
`subject`     the broker under test: found, described, given a topic for the loads
`delivery`    records from a producer to a consumer at a fixed rate, each timed
`broker`      every load of `tailrace bench`, against one broker that already runs
`bare`        the least that a broker could do: what the driver reaches against it is the driver's own limit

A request is never built while the clock runs. Its correlation id is its place in the ring, and a place is
used again only when its reply has come, so ids stay unique among the requests in flight and nothing is
patched.
"""

from tailrace.bench.wire.accounting import Usage, tree_usage
from tailrace.bench.wire.driver import Lane, LaneResult, Outcome, Window, drive
from tailrace.bench.wire.latency import Percentiles, percentiles
from tailrace.bench.wire.reader import FixedReader, LoadError, Reader
from tailrace.bench.wire.ring import Ring

__all__ = [
    "FixedReader",
    "Lane",
    "LaneResult",
    "LoadError",
    "Outcome",
    "Percentiles",
    "Reader",
    "Ring",
    "Usage",
    "Window",
    "drive",
    "percentiles",
    "tree_usage",
]
