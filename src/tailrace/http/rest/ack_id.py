"""ack_id: one delivered message, as a text that a client keeps and gives back.

    9f2c m 0 . 3 . 1234        without the blanks
    |    | |   |   offset
    |    | |   epoch: an id from before a replay changes nothing
    |    | partition
    |    m: of the subscription's own topic, d: a dead letter that was put up again
    whose it is: a short hash of the subscription's name and the time it was made

Clients must not look into it. The hash is there for mistakes: an id of another subscription, or of one that
had the same name, is refused and acknowledges nothing. Ids in bulk become ranges of offsets by partition.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tailrace.broker.subscriptions.delivery import Delivery
from tailrace.broker.subscriptions.subscription import Subscription
from tailrace.http.error import HttpError, invalid
from tailrace.model.ranges import Ranges

_NUMBER = "(0|[1-9][0-9]{0,18})"
_ACK_ID = re.compile(rf"([0-9a-f]{{4}})([md]){_NUMBER}\.{_NUMBER}\.{_NUMBER}", re.ASCII)
_LONG_MAX = (1 << 63) - 1
_SHOWN_MAX = 100


class Named(NamedTuple):
    """Messages of one partition; what `Subscription.ack` and its like begin with."""

    topic: str
    partition: int
    epoch: int
    ranges: Sequence[tuple[int, int]]


class AckIds:
    """Writes and reads the ids of one subscription."""

    __slots__ = ("_own", "_subscription", "_tag")

    def __init__(self, subscription: Subscription) -> None:
        config = subscription.config
        self._subscription = subscription
        self._own = config.topic
        self._tag = f"{zlib.crc32(f'{config.name}/{subscription.created_ms}'.encode()) & 0xFFFF:04x}"

    def write(self, delivery: Delivery) -> str:
        source = delivery.source
        kind = "m" if source.topic == self._own else "d"
        return f"{self._tag}{kind}{source.partition}.{delivery.epoch}.{delivery.record.offset}"

    def read(self, ids: Iterable[str]) -> list[Named]:
        """The messages that ids stand for; INVALID_REQUEST names the first that stands for none."""
        config = self._subscription.config
        topics = {"m": config.topic, "d": config.dead_letter_topic}
        known = {(each.source.topic, each.source.partition) for each in self._subscription.partitions}
        offsets: dict[tuple[str, int, int], list[int]] = {}
        for text in ids:
            found = _ACK_ID.fullmatch(text)
            if found is None:
                raise _refused(text, "is no ack_id. Send back what a pull has given, as it is")
            if found[1] != self._tag:
                raise _refused(text, f"is not of subscription {config.name} as it is now")
            topic, partition, epoch, offset = topics[found[2]], int(found[3]), int(found[4]), int(found[5])
            if (topic, partition) not in known or max(epoch, offset) >= _LONG_MAX:
                raise _refused(text, f"is of no partition that subscription {config.name} delivers from")
            offsets.setdefault((topic, partition, epoch), []).append(offset)
        return [Named(*place, _ranges(found)) for place, found in offsets.items()]


def _ranges(offsets: list[int]) -> list[tuple[int, int]]:
    """Half-open ranges; sorted first, since adding at the end costs least."""
    return list(Ranges((offset, offset + 1) for offset in sorted(offsets)))


def _refused(text: str, why: str) -> HttpError:
    shown = text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
    return invalid(f"ack_ids: {shown!r} {why}", ack_id=shown)
