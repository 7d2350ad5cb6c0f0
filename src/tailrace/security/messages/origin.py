"""Which topic a record may say that it was written to, if it is read from another one.

    the topic read            always
    `_dlq_topic`              a dead letter: the broker, or a consumer of ours, says where it comes from
    `_replay_topic`           `tailrace pipeline run replay --to-topic`
    `_mirror_topic`           a mirror that says so, such as MirrorMaker with the transformation InsertHeader
    `<alias>.<topic>`         MirrorMaker's name for a topic of another cluster, if `mirrors` has the alias

Delayed messages keep the topic that they were published to, and need no rule. A topic that was mirrored twice
is `west.east.orders`. These headers are not proven by anything: `origins` bounds what they may name.
"""

from __future__ import annotations

from typing import Final

from tailrace.security.messages.encryption import Encryption
from tailrace.security.messages.envelope import ReadHeaders

DEAD_LETTER: Final = "_dlq_topic"
REPLAY: Final = "_replay_topic"
MIRROR: Final = "_mirror_topic"
_NAMING: Final = frozenset({DEAD_LETTER, REPLAY, MIRROR})


def is_accepted(origin: str, *, topic: str, headers: ReadHeaders, encryption: Encryption) -> bool:
    """Whether a record that was written to `origin` may be read from `topic`."""
    if origin == topic:
        return True
    if encryption.origins is not None and origin not in encryption.origins:
        return False
    named = origin.encode()
    if any(name in _NAMING and value == named for name, value in headers):
        return True
    return _is_mirror_of(topic, origin, encryption.mirrors)


def _is_mirror_of(topic: str, origin: str, aliases: frozenset[str]) -> bool:
    """Whether MirrorMaker calls the topic so: an alias and a dot in front, once for each mirror."""
    for alias in aliases:
        rest = topic.removeprefix(f"{alias}.")
        if rest != topic and (rest == origin or _is_mirror_of(rest, origin, aliases)):
            return True
    return False
