"""The two times that stand for places in a log when offsets are asked for by time (ListOffsets)."""

LATEST = -1
"""The time that stands for the end of a partition."""
EARLIEST = -2
"""The time that stands for its start."""
