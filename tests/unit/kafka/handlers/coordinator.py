"""A double of the group coordinator: it notes what it is asked, and answers as it was told.

The real one has tests of its own, and a whole life of a group runs over it in test_group_life.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.broker.gate import Gate
from tailrace.broker.groups.api import CommitRequest, JoinRequest, LeavingMember, SyncRequest
from tailrace.model import BrokerError, ErrorCode, StorageError, TopicPartition

from .stage import SESSION, Stage

LOADING = BrokerError("the groups are being loaded", code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
BROKEN = StorageError("write", "/data", "no such device")


class Coordinator:
    """Answers as it was told, or raises that; notes what it was asked."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[object] = []
        self.required_stable = False

    async def join(self, request: JoinRequest) -> object:
        return self._say(request)

    async def sync(self, request: SyncRequest) -> object:
        return self._say(request)

    def heartbeat(
        self, group_id: str, *, generation_id: int, member_id: str, group_instance_id: str | None
    ) -> object:
        return self._say((group_id, generation_id, member_id, group_instance_id))

    async def leave(self, group_id: str, members: Sequence[LeavingMember]) -> object:
        return self._say((group_id, list(members)))

    async def commit_offsets(self, request: CommitRequest) -> object:
        return self._say(request)

    def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool
    ) -> object:
        self.required_stable = require_stable
        return self._say((group_id, None if partitions is None else list(partitions)))

    def list_groups(self, *, states: Sequence[str] = ()) -> object:
        return self._say(list(states))

    def describe(self, group_id: str) -> object:
        answer = self.answer
        if isinstance(answer, Mapping):
            self.answer = answer[group_id]
        try:
            return self._say(group_id)
        finally:
            self.answer = answer

    async def delete(self, group_ids: Mapping[str, None]) -> object:
        return self._say(list(group_ids))

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> object:
        return self._say((group_id, list(partitions)))

    def _say(self, asked: object) -> object:
        self.asked.append(asked)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def cast(stage: Stage, answer: object) -> Coordinator:
    """Put a double in the coordinator's place for the rest of the scenario's questions."""
    double = Coordinator(answer)
    stage.access = Gate(_WithGroups(stage.broker, double)).access(SESSION)  # type: ignore[arg-type]
    return double


class _WithGroups:
    """A broker, but for its groups."""

    def __init__(self, broker: object, groups: Coordinator) -> None:
        self._broker = broker
        self.groups = groups

    def __getattr__(self, name: str) -> object:
        return getattr(self._broker, name)
