"""What a member of a consumer group subscribes to: the start of ConsumerProtocolSubscription.

    int16 version | array of topic string | user data | ...

Only the topics matter here; everything after them belongs to the assignors. Metadata of other protocol types
is never looked at.
"""

from __future__ import annotations

from tailrace.broker.groups.roster import Roster
from tailrace.broker.internal import FieldReader, MalformedFields

CONSUMER_PROTOCOL = "consumer"


def subscribed_topics(roster: Roster, protocol_name: str | None) -> frozenset[str] | None:
    """The topics that the members of a consumer group read; None if that cannot be told."""
    if not roster:
        return frozenset()
    if roster.protocol_type != CONSUMER_PROTOCOL or protocol_name is None:
        return None
    topics: set[str] = set()
    for member in roster:
        subscription = read_topics(member.metadata(protocol_name))
        if subscription is None:
            return None
        topics |= subscription
    return frozenset(topics)


def leaves_shares_right(before: bytes, after: bytes | None, *, protocol_type: str) -> bool:
    """Whether what a returning member says now (None: nothing) leaves the shares of everybody right.

    A consumer's metadata also says what it owned when it joined, which differs after every restart: only its
    topics count.
    """
    if after is None or before == after:
        return before == after
    if protocol_type != CONSUMER_PROTOCOL:
        return False
    topics = read_topics(after)
    return topics is not None and topics == read_topics(before)


def read_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics subscribed to; None if the bytes are no subscription."""
    fields = FieldReader(metadata)
    try:
        if fields.int16() < 0:
            return None
        return frozenset(fields.string() for _ in range(fields.count(element_bytes_min=2)))
    except MalformedFields:
        return None
