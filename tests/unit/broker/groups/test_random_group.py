"""The machine under random members, failing stores and passing time: invariants of any history."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from tests.unit.broker.groups.conftest import Stage

from tailrace.broker.groups.api import JoinResult, LeavingMember, SyncResult
from tailrace.broker.groups.effects import Store
from tailrace.broker.groups.group import Group
from tailrace.model import BrokerError, ErrorCode

ERRORS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}
OFFERS: list[list[tuple[str, bytes]]] = [
    [("range", b"1")],
    [("range", b"2"), ("sticky", b"1")],
    [("sticky", b"2"), ("range", b"1")],
    [("sticky", b"3")],
]
SESSIONS_MS = [1_000, 10_000, 50_000]


class RandomGroup(RuleBasedStateMachine):
    """Everything that clients, the log and the clock may do to one group, in any order."""

    members = Bundle("members")  # ids that somebody was given, valid or not by now
    stores = Bundle("stores")

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(size_max=4, initial_delay_ms=500)
        self.stage.stores_at_once = False
        self.asked: dict[int, str] = {}  # token -> who asked, "" for whoever had no id
        self.taken_stores = 0
        self.generation = 0

    def _call(self, who: str, call: Any, *args: Any, **kwargs: Any) -> None:
        try:
            self.asked[call(*args, **kwargs)] = who
        except BrokerError as refused:
            if refused.code not in ERRORS:
                raise

    def _ids(self) -> Any:
        found = [answer.member_id for answer in self.stage.answers.values() if isinstance(answer, JoinResult)]
        return multiple(*found[-3:])

    @rule(
        target=members,
        offer=st.sampled_from(OFFERS),
        instance=st.sampled_from([None, None, "i1", "i2"]),
        requires_id=st.booleans(),
        session_ms=st.sampled_from(SESSIONS_MS),
        rebalance_ms=st.sampled_from([0, 5_000, 60_000]),
    )
    def newcomer(
        self,
        offer: list[tuple[str, bytes]],
        instance: str | None,
        requires_id: bool,
        session_ms: int,
        rebalance_ms: int,
    ) -> Any:
        self._call(
            "",
            self.stage.join,
            protocols=offer,
            instance=instance,
            requires_id=requires_id,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
        )
        return self._ids()

    @rule(target=members, member=members, offer=st.sampled_from(OFFERS), named=st.booleans())
    def joins_again(self, member: str, offer: list[tuple[str, bytes]], named: bool) -> Any:
        self._call(
            member, self.stage.join, member, protocols=offer, instance=self._name(member) if named else None
        )
        return self._ids()

    @rule(target=members)
    def everybody_joins_again(self) -> Any:
        for member in list(self.stage.group.roster):
            self._call(
                member.member_id,
                self.stage.join,
                member.member_id,
                protocols=member.protocols,
                instance=member.instance_id,
            )
        return self._ids()

    @rule(member=members, named=st.booleans(), generation_off=st.sampled_from([0, 0, 0, -1, 1]))
    def syncs(self, member: str, named: bool, generation_off: int) -> None:
        shares = {known.member_id: known.member_id.encode() for known in self.stage.group.roster}
        self._call(
            member,
            self.stage.sync,
            member,
            shares,
            generation=self.stage.group.generation_id + generation_off,
            instance=self._name(member) if named else None,
        )

    @rule()
    def everybody_syncs(self) -> None:
        for member in list(self.stage.group.roster):
            self.syncs(member.member_id, named=True, generation_off=0)

    @rule(member=members)
    def beats(self, member: str) -> None:
        code = self.stage.heartbeat(member)
        assert code in ERRORS | {ErrorCode.NONE}
        if code is ErrorCode.NONE:
            assert self.stage.group.state in ("Stable", "CompletingRebalance")

    @rule(member=members, named=st.booleans())
    def leaves(self, member: str, named: bool) -> None:
        self.stage.leave(LeavingMember(member, self._name(member) if named else None))

    @rule(instance=st.sampled_from(["i1", "i2", "i3"]))
    def is_removed_by_name(self, instance: str) -> None:
        self.stage.leave(LeavingMember("", instance))

    @rule(ms=st.sampled_from([1, 400, 999, 5_000, 20_000]))
    def time_passes(self, ms: int) -> None:
        self.stage.advance(ms)

    @rule(target=stores)
    def stores_reach_the_log(self) -> Any:
        fresh = self.stage.stores[self.taken_stores :]
        self.taken_stores += len(fresh)
        return multiple(*fresh)

    @rule(store=consumes(stores), fails=st.sampled_from([False, False, False, True]))
    def a_store_ends(self, store: Store, fails: bool) -> None:
        self.stage.finish(store, ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else ErrorCode.NONE)

    def _name(self, member_id: str) -> str | None:
        member = self.stage.group.roster.get(member_id)
        return None if member is None else member.instance_id

    @invariant()
    def the_leader_is_a_member(self) -> None:
        group = self.stage.group
        ids = [member.member_id for member in group.roster]
        assert (group.roster.leader in ids) if ids else group.roster.leader is None
        assert len(set(ids)) == len(ids)

    @invariant()
    def the_state_fits_the_members(self) -> None:
        group = self.stage.group
        assert (group.state == "Empty") <= (not len(group.roster))
        if group.state in ("Stable", "CompletingRebalance"):
            assert len(group.roster) > 0
            assert group.protocol_name in dict(next(iter(group.roster)).protocols)

    @invariant()
    def the_generation_only_grows(self) -> None:
        assert self.stage.group.generation_id >= self.generation
        self.generation = self.stage.group.generation_id

    @invariant()
    def exactly_the_waiting_requests_are_parked(self) -> None:
        parked = [m.join_token for m in self.stage.group.roster if m.join_token is not None]
        parked += [m.sync_token for m in self.stage.group.roster if m.sync_token is not None]
        waiting = [token for token in self.asked if token not in self.stage.answers]
        assert sorted(parked) == sorted(waiting)

    @invariant()
    def nobody_waits_for_shares_outside_of_completing(self) -> None:
        if self.stage.group.state != "CompletingRebalance":
            assert all(member.sync_token is None for member in self.stage.group.roster)

    @invariant()
    def there_is_always_a_time_to_wake_while_anybody_is_here(self) -> None:
        group = self.stage.group
        if len(group.roster) or group.roster.promises:
            assert group.wake_ms is not None

    @invariant()
    def a_kept_group_can_be_restored(self) -> None:
        for store in self.stage.stores[-1:]:
            restored = Group("g", now_ms=self.stage.now_ms)
            restored.restore(store.group, now_ms=self.stage.now_ms)
            assert restored.generation_id == store.group.generation_id
            assert len(restored.roster) == len(store.group.members)

    @invariant()
    def only_leaders_are_given_members_and_one_leads_each_generation(self) -> None:
        leaders: dict[int, set[str]] = {}
        for answer in self.stage.answers.values():
            if isinstance(answer, JoinResult) and answer.members:
                assert answer.leader == answer.member_id
                leaders.setdefault(answer.generation_id, set()).add(answer.member_id)
        assert all(len(ids) == 1 for ids in leaders.values())

    @invariant()
    def nobody_gets_the_share_of_another(self) -> None:
        for token, member_id in self.asked.items():
            answer, name = self.stage.answers.get(token), self._name(member_id)
            if isinstance(answer, SyncResult) and name is None and member_id in self.stage.group.roster:
                assert answer.assignment in (b"", member_id.encode())

    def teardown(self) -> None:
        """Left alone, with a log that answers, everybody is answered and the group becomes empty."""
        stage = self.stage
        stage.stores_at_once = True
        for store in stage.stores[self.taken_stores :]:
            stage.finish(store)
        stage.advance(400_000)
        assert set(self.asked) <= set(stage.answers)
        assert stage.group.state == "Empty"
        assert stage.group.wake_ms is None


RandomGroup.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestRandomGroup = RandomGroup.TestCase
