"""How the leader of a group shares partitions out, and what members tell each other through the broker.

    subscription   version:int16 | topics:[string] | user_data:bytes
    assignment     version:int16 | [ topic:string | partitions:[int32] ] | user_data:bytes

Both are Kafka's consumer protocol in version 0, which every client reads; of newer versions the known part is
read and the rest ignored. The bytes come from other members: every count is held against what is left.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from tailrace.model import ProtocolError, TopicPartition

Members: TypeAlias = Mapping[str, Sequence[str]]
"""The topics that each member subscribed to, by member id."""
Assignment: TypeAlias = dict[str, list[TopicPartition]]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def assign_range(members: Members, partitions: Mapping[str, int]) -> Assignment:
    """Topic by topic, neighbouring partitions to each member; the first ones get what is left over."""
    result: Assignment = {member: [] for member in members}
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        sharing = sorted(member for member, topics in members.items() if topic in topics)
        each, over = divmod(partitions.get(topic, 0), len(sharing))
        start = 0
        for place, member in enumerate(sharing):
            count = each + (place < over)
            result[member] += [TopicPartition(topic, index) for index in range(start, start + count)]
            start += count
    return result


def assign_round_robin(members: Members, partitions: Mapping[str, int]) -> Assignment:
    """All partitions of all topics dealt out one at a time to the members that want them."""
    result: Assignment = {member: [] for member in members}
    order = sorted(members)
    turn = 0
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        for index in range(partitions.get(topic, 0)):
            while topic not in members[order[turn % len(order)]]:
                turn += 1
            result[order[turn % len(order)]].append(TopicPartition(topic, index))
            turn += 1
    return result


ASSIGNORS: Mapping[str, Callable[[Members, Mapping[str, int]], Assignment]] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
}


def write_subscription(topics: Iterable[str]) -> bytes:
    """What a member wants to read."""
    names = sorted(topics)
    return _INT16.pack(0) + _INT32.pack(len(names)) + b"".join(map(_text, names)) + _INT32.pack(-1)


def read_subscription(data: bytes) -> list[str]:
    """The topics that a member wants to read."""
    reader = _Reader(data)
    reader.version()
    return [reader.text() for _ in range(reader.count(bytes_min=2))]


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """What a member shall read."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    out = [_INT16.pack(0), _INT32.pack(len(topics))]
    for topic, indexes in sorted(topics.items()):
        out += [_text(topic), struct.pack(f">i{len(indexes)}i", len(indexes), *sorted(indexes))]
    return b"".join([*out, _INT32.pack(-1)])


def read_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions that a member shall read; none where the leader sent nothing."""
    if not data:
        return []
    reader = _Reader(data)
    reader.version()
    found = []
    for _ in range(reader.count(bytes_min=6)):
        topic = reader.text()
        found += [TopicPartition(topic, reader.int32()) for _ in range(reader.count(bytes_min=4))]
    return found


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _INT16.pack(len(encoded)) + encoded


class _Reader:
    """Reads one value after the other; ProtocolError where the bytes do not hold it."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def version(self) -> int:
        version = self._unpack(_INT16)
        if version < 0:
            raise ProtocolError(f"version {version} of the consumer protocol does not exist")
        return version

    def int32(self) -> int:
        return self._unpack(_INT32)

    def count(self, *, bytes_min: int) -> int:
        count = self._unpack(_INT32)
        if not 0 <= count * bytes_min <= len(self._data) - self._at:
            raise ProtocolError(f"a group member's data claims {count} elements in {len(self._data)} bytes")
        return count

    def text(self) -> str:
        size = self._unpack(_INT16)
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise ProtocolError("a group member's data is cut off inside a name")
        encoded, self._at = self._data[self._at : end], end
        try:
            return encoded.decode()
        except UnicodeDecodeError as error:
            raise ProtocolError("a name in a group member's data is not UTF-8") from error

    def _unpack(self, kind: struct.Struct) -> int:
        try:
            (value,) = kind.unpack_from(self._data, self._at)
        except struct.error as error:
            raise ProtocolError("a group member's data is cut off") from error
        self._at += kind.size
        assert isinstance(value, int)
        return value
