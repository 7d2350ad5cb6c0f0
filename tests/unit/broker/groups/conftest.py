"""A stage for one group: members who speak in one line each, and a log that answers when it is told to."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from tailrace.broker.groups.api import (
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from tailrace.broker.groups.effects import JoinAnswer, Store, SyncAnswer
from tailrace.broker.groups.group import Group
from tailrace.model import BrokerError, ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """ConsumerProtocolSubscription, version 0."""
    parts = [struct.pack(">hi", 0, len(topics))]
    parts += [struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics]
    return b"".join(parts) + struct.pack(">i", len(user_data)) + user_data


class Stage:
    """Drives a Group: keeps the time, collects answers by token, and performs stores at once if `stores`."""

    def __init__(self, *, size_max: int = 100, initial_delay_ms: int = 0) -> None:
        self.now_ms = 1_000_000
        self.group = Group(
            "g", now_ms=self.now_ms, size_max=size_max, initial_rebalance_delay_ms=initial_delay_ms
        )
        self.answers: dict[int, JoinResult | SyncResult | ErrorCode] = {}
        self.stores: list[Store] = []
        self.stores_at_once = True
        self._token = 0
        self._ids = 0

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b"meta"),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        requires_id: bool = False,
        can_skip: bool = False,
    ) -> int:
        """Ask to join; the token of the request. New ids are m1, m2, ..."""
        self._token += 1
        self._ids += 1
        request = JoinRequest(
            group_id="g",
            member_id=member_id,
            group_instance_id=instance,
            client_id="client",
            client_host="/10.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=list(protocols),
            requires_member_id=requires_id,
            can_skip_assignment=can_skip,
        )
        try:
            self.group.join(request, token=self._token, new_member_id=f"m{self._ids}", now_ms=self.now_ms)
        finally:
            self.perform()
        return self._token

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        self._token += 1
        request = SyncRequest(
            group_id="g",
            generation_id=self.group.generation_id if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=assignments or {},
        )
        try:
            self.group.sync(request, token=self._token, now_ms=self.now_ms)
        finally:
            self.perform()
        return self._token

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance: str | None = None
    ) -> ErrorCode:
        try:
            self.group.heartbeat(
                generation_id=self.group.generation_id if generation is None else generation,
                member_id=member_id,
                group_instance_id=instance,
                now_ms=self.now_ms,
            )
        except BrokerError as refused:
            return refused.code
        finally:
            self.perform()
        return ErrorCode.NONE

    def commit(self, member_id: str = "", *, generation: int = -1, instance: str | None = None) -> ErrorCode:
        try:
            self.group.check_commit(
                generation_id=generation, member_id=member_id, group_instance_id=instance, now_ms=self.now_ms
            )
        except BrokerError as refused:
            return refused.code
        return ErrorCode.NONE

    def leave(self, *members: LeavingMember | str) -> list[LeaveResult]:
        leaving = [LeavingMember(member) if isinstance(member, str) else member for member in members]
        try:
            return self.group.leave(leaving, now_ms=self.now_ms)
        finally:
            self.perform()

    def advance(self, ms: int) -> None:
        """Let time pass, waking the group whenever it asks for it."""
        end_ms = self.now_ms + ms
        while (wake_ms := self.group.wake_ms) is not None and wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, wake_ms)
            self.group.tick(self.now_ms)
            self.perform()
        self.now_ms = end_ms

    def finish(self, store: Store, error: ErrorCode = ErrorCode.NONE) -> None:
        self.group.stored(store, error, now_ms=self.now_ms)
        self.perform()

    def perform(self) -> None:
        for effect in self.group.drain():
            if isinstance(effect, JoinAnswer | SyncAnswer):
                assert effect.token not in self.answers, "every request is answered once"
                self.answers[effect.token] = effect.result
            else:
                self.stores.append(effect)
                if self.stores_at_once:
                    self.finish(effect)

    # What came of it

    def is_waiting(self, token: int) -> bool:
        return token not in self.answers

    def joined(self, token: int) -> JoinResult:
        result = self.answers[token]
        assert isinstance(result, JoinResult), result
        return result

    def share(self, token: int) -> bytes:
        result = self.answers[token]
        assert isinstance(result, SyncResult), result
        return result.assignment

    def error(self, token: int) -> ErrorCode:
        result = self.answers[token]
        assert isinstance(result, ErrorCode), result
        return result

    def stable(
        self, *members: str, instances: Sequence[str | None] = (), session_ms: int = SESSION_MS
    ) -> list[str]:
        """Bring the group to Stable with so many members, each assigned its own name; their ids."""
        ids: list[str] = []
        for index, _ in enumerate(members):
            instance = instances[index] if index < len(instances) else None
            newcomer = self.join(instance=instance, session_ms=session_ms)
            for known in ids:
                self.join(known, instance=self._instance_of(known), session_ms=session_ms)
            ids.append(self.joined(newcomer).member_id)
        leader = self.group.roster.leader
        assert leader is not None
        shares = {member: name.encode() for member, name in zip(ids, members, strict=True)}
        self.sync(leader, shares, instance=self._instance_of(leader))
        for member in ids:
            if member != leader:
                self.sync(member, instance=self._instance_of(member))
        assert self.group.state == "Stable"
        return ids

    def _instance_of(self, member_id: str) -> str | None:
        member = self.group.roster.get(member_id)
        return None if member is None else member.instance_id


def code_of(refused: pytest.ExceptionInfo[BrokerError]) -> ErrorCode:
    return refused.value.code
