"""What a publisher learns of a message that the broker has stored."""

from __future__ import annotations


class Published:
    """Where a message is. One that waits for its time has no place yet: partition and offset are -1."""

    __slots__ = ("_id_prefix", "offset", "partition", "timestamp", "topic")

    def __init__(self, topic: str, partition: int, offset: int, id_prefix: str, timestamp: int) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        """When the broker took it, in milliseconds since 1970."""
        self._id_prefix = id_prefix

    @property
    def id(self) -> str:
        """The message's id; empty if the broker has forgotten where an old duplicate went."""
        if self.offset < 0:
            return self._id_prefix
        return f"{self._id_prefix}{self.offset}" if self._id_prefix else ""

    def __repr__(self) -> str:
        return f"<Published {self.topic}-{self.partition} offset {self.offset}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Published):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def _values(self) -> tuple[str, int, int, str, int]:
        return self.topic, self.partition, self.offset, self.id, self.timestamp
