"""The types of native messages. 1 to 9 are the protocol's first ones; what was added later begins at 32.

A frame carries its type as a plain int, known or not: what to do with a type that nobody knows is for the
reader of the frame to say.
"""

from __future__ import annotations

import enum


class MessageType(enum.IntEnum):
    """What a frame asks for, answers or brings. Dispatch on the plain int of the frame."""

    CREATE_TOPIC = 1
    PUBLISH = 2
    CREATE_SUBSCRIPTION = 3
    DELETE_SUBSCRIPTION = 4
    SUBSCRIBE = 5
    UNSUBSCRIBE = 6
    HEARTBEAT = 7
    ACK = 8
    DATA = 9

    NACK = 32
    PULL = 33
    REPLAY = 34
    CREDIT = 35
    AUTH = 36
    ERROR = 37
    PUBLISH_BATCH = 38
    EXTEND = 39
    DESCRIBE = 40
    REDRIVE = 41
    NOTICE = 42
    TXN_BEGIN = 43
    TXN_COMMIT = 44
    TXN_ABORT = 45

    SEEK = 34  # older name of REPLAY


_NAMES = {int(member): member.name for member in MessageType}


def type_name(number: int) -> str:
    """The name of a type for people; one that nobody knows is called by its number."""
    return _NAMES.get(number, f"type {number}")
