"""What topics may set for the memory engine; -1 means no limit."""

from __future__ import annotations

from tailrace.storage.topic_option import TopicOption

BYTES_MAX = TopicOption(
    name="memory.max.bytes",
    default=64 << 20,
    doc="Memory engine: how many bytes a partition keeps; the oldest batches make room. -1 is without bound.",
)
MESSAGES_MAX = TopicOption(
    name="memory.max.messages",
    default=-1,
    doc="Memory engine: how many records a partition keeps; -1 is without bound.",
)
TTL_MS = TopicOption(
    name="memory.ttl.ms",
    default=-1,
    doc="Memory engine: how long a record is kept at most; -1 is for ever.",
)

OPTIONS = (BYTES_MAX, MESSAGES_MAX, TTL_MS)
