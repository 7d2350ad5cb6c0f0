"""What a member of a consumer group subscribes to: the start of ConsumerProtocolSubscription.

    int16 version | array of topic string | user data | ...

Only the topics matter here; everything after them belongs to the assignors. Metadata of other protocol types
is never looked at.
"""

from __future__ import annotations

from tailrace.broker.groups.fields import FieldReader, MalformedFields

CONSUMER_PROTOCOL = "consumer"


def read_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics subscribed to; None if the bytes are no subscription."""
    fields = FieldReader(metadata)
    try:
        if fields.int16() < 0:
            return None
        return frozenset(fields.string() for _ in range(fields.count(element_bytes_min=2)))
    except MalformedFields:
        return None
