"""Records that are gone although they were to be read: the error, and what it says.

A module of its own, because the process that plans a read needs it and decodes nothing.
"""

from __future__ import annotations

from tailrace.model import TailraceError, TopicPartition


class DataLoss(TailraceError):
    """Records that were to be read are no longer in the log."""


def lost(tp: TopicPartition, start: int, end: int, cause: str) -> str:
    """What is said of offsets that are gone: which, why, and the ways out."""
    return (
        f"data loss: {tp} offsets {start} to {end - 1} cannot be read: {cause}."
        " To go on without them set failOnDataLoss=false, or start over (a stream: with a new checkpoint)"
    )
