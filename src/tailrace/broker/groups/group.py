"""One consumer group: a pure, serialised state machine of Kafka's classic protocol.

Requests, durable stores and ticks go in, each with the time; effects come out (`drain`). No clock, no file,
no await. A request that is refused raises BrokerError at once (effects may be there all the same). A join or
sync that is not refused is given its answer as an effect, of the same call or of a later one: exactly one
answer per token.

The states and what leads to what: `state.py`. Beside that:
- The generation grows whenever a rebalance ends, also in Empty. A request of another generation is refused.
- A dynamic member who did not join again is removed when the rebalance ends; a static one (KIP-345) stays
  until its session ends.
- Stable begins when the assignment is durable, not before: a restart must not know less than a member does.
- A static member who comes back under a new id fences the old one in any state; in Stable it gets the old
  share without a rebalance, unless it changed what matters for sharing out.
- Ids that were given out but have not joined yet (KIP-394) hold up a rebalance, and expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tailrace.broker.groups.api import (
    GroupDescription,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from tailrace.broker.groups.effects import Effect, JoinAnswer, Store, StoreReason
from tailrace.broker.groups.member import Member
from tailrace.broker.groups.roster import Roster
from tailrace.broker.groups.state import TRANSITIONS, GroupState
from tailrace.broker.groups.stored import StoredGroup
from tailrace.broker.groups.subscription import leaves_shares_right, subscribed_topics
from tailrace.broker.groups.waiting import Waiting
from tailrace.model import BrokerError, ErrorCode

LATE_TIMEOUT_MS_MIN = 1_000
"""The least time for what follows a rebalance timeout, which a client may set to nothing."""
PROMISES_MAX = 10_000
"""Ids that one group may have given out to members who have not joined yet, however large it may grow."""
_GENERATION_MAX = (1 << 31) - 1


class Group:
    """One group."""

    def __init__(
        self, group_id: str, *, now_ms: int, size_max: int = 10_000, initial_rebalance_delay_ms: int = 0
    ) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation_id = 0
        self.protocol_name: str | None = None  # chosen anew with every generation
        self.roster = Roster(promises_max=min(size_max, PROMISES_MAX))
        self._size_max = size_max
        self._initial_delay_ms = initial_rebalance_delay_ms
        self._unsynced: set[str] = set()  # members who were told of this generation and have not synced yet
        self._rebalance_deadline_ms: int | None = None  # set in PreparingRebalance
        self._initial_left_ms: int | None = None  # by how much the initial delay may grow; None: it is over
        self._newcomer = False  # somebody came during the initial delay
        self._sync_deadline_ms: int | None = None  # when whoever has not synced by then is removed
        self._storing: Store | None = None  # the assignment on its way to the log
        self._waiting = Waiting()

    def restore(self, stored: StoredGroup, *, now_ms: int) -> None:
        """Take over what was kept. The members have a whole session from now to show that they live."""
        assert self.state is GroupState.EMPTY and not self.generation_id, "only a new group can be restored"
        self.generation_id = stored.generation_id
        self.roster.protocol_type = stored.protocol_type
        if stored.state_since_ms >= 0:
            self.state_since_ms = stored.state_since_ms
        for kept in stored.members:
            assert stored.protocol_name is not None, "no record of members without their protocol is accepted"
            self.state, self.protocol_name = GroupState.STABLE, stored.protocol_name
            member = Member.read(kept, stored.protocol_name)
            self.roster.add(member, stored.protocol_type)
            self._waiting.touch(member, now_ms)
        if stored.members:
            self.roster.leader = stored.leader

    def __repr__(self) -> str:
        members = len(self.roster)
        return f"<Group {self.group_id} {self.state}, generation {self.generation_id}, {members} members>"

    @property
    def wake_ms(self) -> int | None:
        """When `tick` must be called at the latest for nothing to be late."""
        return self._waiting.wake_ms

    def drain(self) -> list[Effect]:
        """What is to be done since the last call, in order."""
        effects, self._waiting.effects = self._waiting.effects, []
        return effects

    # Requests

    def join(self, request: JoinRequest, *, token: int, new_member_id: str, now_ms: int) -> None:
        """JoinGroup. `new_member_id` is one that nobody has had, for whoever comes without an id."""
        self._check_alive()
        self._check_size(request.member_id, now_ms)
        if request.member_id:
            self._join_again(request, token=token, now_ms=now_ms)
        else:
            self._join_new(request, token=token, new_member_id=new_member_id, now_ms=now_ms)
        self._try_complete_join(now_ms)

    def sync(self, request: SyncRequest, *, token: int, now_ms: int) -> None:
        """SyncGroup: the leader brings the assignment, everybody gets its share once that is durable."""
        member = self._check_generation(
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
        )
        self._check_protocol(request)
        if self.state is GroupState.PREPARING:
            raise _rejoin()
        self._unsynced.discard(member.member_id)
        self._waiting.park_sync(member, token)
        if self.state is GroupState.STABLE:
            self._waiting.answer_sync(member, self._share_of(member), now_ms)
            return
        self._waiting.touch(member, now_ms)
        if member.member_id == self.roster.leader and self._storing is None:
            self._store_assignment(request.assignments, now_ms)

    def heartbeat(
        self, *, generation_id: int, member_id: str, group_instance_id: str | None, now_ms: int
    ) -> None:
        """Heartbeat; REBALANCE_IN_PROGRESS asks the member to join again, and its session goes on."""
        member = self._check_generation(
            generation_id=generation_id, member_id=member_id, group_instance_id=group_instance_id
        )
        self._waiting.touch(member, now_ms)
        if self.state is GroupState.PREPARING:
            raise _rejoin()

    def leave(self, members: Iterable[LeavingMember], *, now_ms: int) -> list[LeaveResult]:
        """LeaveGroup, several at once (KIP-345): each gets its own answer."""
        self._check_alive()
        results, gone = [], False
        for leaving in members:
            error = ErrorCode.NONE
            try:
                member = self._find_leaving(leaving)
            except BrokerError as refused:
                error = refused.code
            else:
                if member is not None:
                    self._remove(member.member_id)
                    gone = True
            results.append(LeaveResult(leaving.member_id, leaving.group_instance_id, error))
        if gone:
            self._prepare_rebalance(now_ms)
        self._try_complete_join(now_ms)
        return results

    def check_commit(
        self,
        *,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        now_ms: int,
        transactional: bool = False,
    ) -> None:
        """Whether these positions may be committed. A commit of a member is a sign of life.

        A transaction may leave out the member (TxnOffsetCommit before v3), and may commit while the group
        waits for its leader: the generation already says that no other member reads the partitions (KIP-447).
        """
        self._check_alive()
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return  # somebody who shares out partitions by other means, or an administrator
        if transactional and generation_id < 0 and not member_id and group_instance_id is None:
            return
        member = self._check_generation(
            generation_id=generation_id, member_id=member_id, group_instance_id=group_instance_id
        )
        if self.state is GroupState.COMPLETING and not transactional:
            raise _refuse(ErrorCode.REBALANCE_IN_PROGRESS, "the member has joined but not synced yet")
        self._waiting.touch(member, now_ms)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members of a consumer group read; None if that cannot be told."""
        return subscribed_topics(self.roster, self.protocol_name)

    def describe(self) -> GroupDescription:
        """The group as an administrator sees it."""
        shown = self.protocol_name if self.state is GroupState.STABLE else None
        return GroupDescription(
            group_id=self.group_id,
            state=str(self.state),
            protocol_type=self.roster.protocol_type,
            protocol_name=shown or "",
            members=self.roster.describe(shown),
        )

    # What else happens

    def stored(self, store: Store, error: ErrorCode, *, now_ms: int) -> None:
        """A Store effect is durable, or failed."""
        if store is self._storing:
            self._storing = None
            self._assignment_stored(error, now_ms)
        elif store.reason is StoreReason.REPLACED:
            self._replacement_stored(store, error, now_ms)

    def tick(self, now_ms: int) -> None:
        """Let happen what is due: sessions and given-out ids end, a rebalance stops waiting."""
        self.roster.expire_promises(now_ms)
        too_late = _is_due(self._sync_deadline_ms, now_ms)
        gone = [
            member.member_id
            for member in self.roster
            if _is_due(member.deadline_ms, now_ms) or (too_late and member.member_id in self._unsynced)
        ]
        for member_id in gone:
            self._remove(member_id)
        if too_late:
            self._sync_deadline_ms = None
        # All may have synced and still it is too late: the log does not answer. They are sent to join again.
        if gone or (too_late and self.state is GroupState.COMPLETING):
            self._prepare_rebalance(now_ms)
        self._try_complete_join(now_ms)
        self._reset_wake()

    def die(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """The group is gone, or not ours any more: whoever waits is told so."""
        for member in list(self.roster):
            self._remove(member.member_id, error)
        self.roster.clear_promises()
        self._storing = self._waiting.wake_ms = None
        self.state = GroupState.DEAD

    # Joining

    def _join_new(self, request: JoinRequest, *, token: int, new_member_id: str, now_ms: int) -> None:
        old = self.roster.find_instance(request.group_instance_id)
        self.roster.check_protocols(request.protocol_type, request.protocols, besides=old)
        if old is not None:
            self._replace(old, request, new_member_id=new_member_id, token=token, now_ms=now_ms)
        elif request.group_instance_id is None and request.requires_member_id:
            deadline_ms = now_ms + request.session_timeout_ms
            self.roster.promise(new_member_id, deadline_ms)
            self._waiting.wake_by(deadline_ms)
            result = JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=new_member_id)
            self._waiting.effects.append(JoinAnswer(token=token, result=result))
        else:
            self._add(new_member_id, request, token=token, now_ms=now_ms)

    def _join_again(self, request: JoinRequest, *, token: int, now_ms: int) -> None:
        member_id = request.member_id
        if member_id not in self.roster and request.group_instance_id is None:
            self._keep_promise(request, token=token, now_ms=now_ms)
            return
        member = self.roster.check(member_id, request.group_instance_id)
        self.roster.check_protocols(request.protocol_type, request.protocols, besides=member)
        if member.protocols == tuple(request.protocols) and self._may_have_missed(member):
            self._waiting.park_join(member, token)
            self._waiting.answer_join(member, self._generation_for(member), now_ms)
            return
        self._update(member, request, token=token, now_ms=now_ms)
        self._prepare_rebalance(now_ms)

    def _keep_promise(self, request: JoinRequest, *, token: int, now_ms: int) -> None:
        """Somebody comes with the id that he was given."""
        if not self.roster.keep_promise(request.member_id):
            raise _refuse(ErrorCode.UNKNOWN_MEMBER_ID, f"member {request.member_id!r} is not known")
        self.roster.check_protocols(request.protocol_type, request.protocols)
        self._add(request.member_id, request, token=token, now_ms=now_ms)

    def _may_have_missed(self, member: Member) -> bool:
        """Whether a member that joins unchanged only lost our answer, and is told again what it said.

        A leader in Stable asks for a rebalance by joining: it may have seen new partitions.
        """
        if self.state is GroupState.STABLE:
            return member.member_id != self.roster.leader
        return self.state is GroupState.COMPLETING

    def _add(self, member_id: str, request: JoinRequest, *, token: int, now_ms: int) -> None:
        member = Member(member_id, request.group_instance_id)
        self.roster.add(member, request.protocol_type)
        self._update(member, request, token=token, now_ms=now_ms)
        self._newcomer = True
        self._prepare_rebalance(now_ms)

    def _update(self, member: Member, request: JoinRequest, *, token: int, now_ms: int) -> None:
        """Take over what a join says of its member, and let the join wait."""
        self._waiting.park_join(member, token)
        member.client_id, member.client_host = request.client_id, request.client_host
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.rebalance_timeout_ms < 0:
            member.rebalance_timeout_ms = request.session_timeout_ms
        member.can_skip_assignment = request.can_skip_assignment
        self.roster.set_protocols(member, request.protocols)
        self._waiting.touch(member, now_ms)

    def _replace(
        self, old: Member, request: JoinRequest, *, new_member_id: str, token: int, now_ms: int
    ) -> None:
        """A static member is back under a new id (KIP-345); whoever still uses the old one is fenced."""
        leader_before = self.roster.leader
        keeps_share = self.state is GroupState.STABLE and leaves_shares_right(
            old.metadata(self.protocol_name),
            dict(request.protocols).get(self.protocol_name or ""),
            protocol_type=self.roster.protocol_type,
        )
        self._waiting.supersede(old, ErrorCode.FENCED_INSTANCE_ID)
        member = Member(new_member_id, old.instance_id)
        member.assignment, member.protocols, member.is_new = old.assignment, old.protocols, False
        self.roster.replace(old, member)
        if old.member_id in self._unsynced:
            self._unsynced = self._unsynced - {old.member_id} | {new_member_id}
        self._update(member, request, token=token, now_ms=now_ms)
        if keeps_share and self.roster.plan_protocol() == self.protocol_name:
            self._waiting.set_deadline(member, now_ms + member.session_timeout_ms)
            self._store(StoreReason.REPLACED, token=token, leader_before=leader_before)
        else:
            # Also in CompletingRebalance: the leader may be sharing out to the old id at this moment.
            self._prepare_rebalance(now_ms)

    def _replacement_stored(self, store: Store, error: ErrorCode, now_ms: int) -> None:
        member = next((member for member in self.roster if member.join_token == store.token), None)
        if member is None:
            return  # answered already: superseded, removed, or part of a rebalance that ended meanwhile
        if error:
            self._waiting.answer_join(member, error, now_ms)
        elif self.state is GroupState.STABLE:
            result = self._generation_for(member)
            if result.leader == member.member_id:
                if member.can_skip_assignment:
                    result.skips_assignment = True
                else:
                    # It is told that its old id leads: a Stable group does not hear what it shares out.
                    result.leader, result.members = store.leader_before or "", ()
            self._waiting.answer_join(member, result, now_ms)
        # Else a rebalance has begun since, and this join waits for its end like any other.

    # Rebalancing

    def _prepare_rebalance(self, now_ms: int) -> None:
        """Ask everybody to join again, unless that is already under way."""
        if self.state is GroupState.PREPARING:
            return
        if self.state is GroupState.COMPLETING:
            self._fail_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        for member in self.roster:
            # A returning static member's join may wait for the log: from now on it waits for the rebalance.
            if member.join_token is not None:
                self._waiting.touch(member, now_ms)
        self._unsynced.clear()
        self._sync_deadline_ms = self._storing = None
        wait_ms = self.roster.rebalance_timeout_ms()
        if self.state is GroupState.EMPTY:
            # The members of a service start one after the other: one rebalance for all of them.
            self._initial_left_ms = max(wait_ms - self._initial_delay_ms, 0)
            self._newcomer = False
            wait_ms = self._initial_delay_ms
        self._await_joins(wait_ms, now_ms)
        self._become(GroupState.PREPARING, now_ms)

    def _try_complete_join(self, now_ms: int) -> None:
        """End the collecting of joins if everybody is here, or if it has taken long enough."""
        if self.state is not GroupState.PREPARING:
            return
        due = _is_due(self._rebalance_deadline_ms, now_ms)
        if self._initial_left_ms is None or not self.roster:
            if due or (self._waiting.joining == len(self.roster) and not self.roster.promises):
                self._complete_join(now_ms)
        elif due and self._newcomer and self._initial_left_ms > 0:
            wait_ms = min(self._initial_delay_ms, self._initial_left_ms)
            self._initial_left_ms -= wait_ms
            self._newcomer = False
            self._await_joins(wait_ms, now_ms)
        elif due:
            self._complete_join(now_ms)

    def _await_joins(self, wait_ms: int, now_ms: int) -> None:
        self._rebalance_deadline_ms = now_ms + wait_ms
        self._waiting.wake_by(self._rebalance_deadline_ms)

    def _complete_join(self, now_ms: int) -> None:
        for member in [known for known in self.roster if known.join_token is None and not known.is_static]:
            self._remove(member.member_id)
        if self.roster and not self._waiting.joining:
            # Only static members are left and none of them joined: their sessions decide.
            self._await_joins(max(self.roster.rebalance_timeout_ms(), LATE_TIMEOUT_MS_MIN), now_ms)
            return
        self._initial_left_ms = self._rebalance_deadline_ms = None
        self.generation_id = self.generation_id + 1 if self.generation_id < _GENERATION_MAX else 1
        if self.roster:
            self._begin_generation(now_ms)
        else:
            self.protocol_name = None
            self._become(GroupState.EMPTY, now_ms)
            self._store(StoreReason.EMPTY)

    def _begin_generation(self, now_ms: int) -> None:
        joined = [member for member in self.roster if member.join_token is not None]
        if self.roster.leader not in {member.member_id for member in joined}:
            self.roster.leader = joined[0].member_id
        self.protocol_name = self.roster.plan_protocol()
        self._become(GroupState.COMPLETING, now_ms)
        for member in self.roster:
            member.assignment = b""
        for member in joined:
            member.is_new = False
            self._unsynced.add(member.member_id)
            self._waiting.answer_join(member, self._generation_for(member), now_ms)
        self._sync_deadline_ms = now_ms + max(self.roster.rebalance_timeout_ms(), LATE_TIMEOUT_MS_MIN)
        self._waiting.wake_by(self._sync_deadline_ms)

    def _store_assignment(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """The leader has decided. Whoever it forgot gets an empty share; strangers are passed over."""
        for member in self.roster:
            member.assignment = bytes(assignments.get(member.member_id, b""))
        self._storing = self._store(StoreReason.ASSIGNED, state_since_ms=now_ms)

    def _assignment_stored(self, error: ErrorCode, now_ms: int) -> None:
        assert self.state is GroupState.COMPLETING, "leaving the state forgets what is being stored"
        if error:
            self._fail_syncs(error, now_ms)
            self._prepare_rebalance(now_ms)
            self._try_complete_join(now_ms)
            return
        self._become(GroupState.STABLE, now_ms)
        for member in self.roster:
            if member.sync_token is not None:
                self._waiting.answer_sync(member, self._share_of(member), now_ms)

    def _become(self, state: GroupState, now_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} does not lead to {state}"
        self.state, self.state_since_ms = state, now_ms

    def _store(
        self,
        reason: StoreReason,
        *,
        token: int | None = None,
        leader_before: str | None = None,
        state_since_ms: int | None = None,
    ) -> Store:
        stored = StoredGroup(
            protocol_type=self.roster.protocol_type,
            generation_id=self.generation_id,
            protocol_name=self.protocol_name,
            leader=self.roster.leader,
            state_since_ms=self.state_since_ms if state_since_ms is None else state_since_ms,
            members=self.roster.write(self.protocol_name),
        )
        store = Store(reason=reason, group=stored, token=token, leader_before=leader_before)
        self._waiting.effects.append(store)
        return store

    # Members and their requests

    def _remove(self, member_id: str, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        member = self.roster.remove(member_id)
        self._waiting.supersede(member, error)
        self._unsynced.discard(member_id)

    def _find_leaving(self, leaving: LeavingMember) -> Member | None:
        """The member who leaves; None for an id that was only given out, and is taken back."""
        if not leaving.member_id and leaving.group_instance_id is not None:
            member = self.roster.find_instance(leaving.group_instance_id)
            if member is None:
                raise _refuse(ErrorCode.UNKNOWN_MEMBER_ID, f"no instance {leaving.group_instance_id}")
            return member
        if leaving.group_instance_id is None and self.roster.keep_promise(leaving.member_id):
            return None
        return self.roster.check(leaving.member_id, leaving.group_instance_id)

    def _fail_syncs(self, error: ErrorCode, now_ms: int) -> None:
        for member in self.roster:
            member.assignment = b""
            if member.sync_token is not None:
                self._waiting.answer_sync(member, error, now_ms)

    def _generation_for(self, member: Member) -> JoinResult:
        leader = self.roster.leader
        assert leader is not None
        return JoinResult(
            generation_id=self.generation_id,
            protocol_type=self.roster.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader,
            member_id=member.member_id,
            members=self.roster.joined(self.protocol_name) if member.member_id == leader else (),
        )

    def _share_of(self, member: Member) -> SyncResult:
        return SyncResult(
            protocol_type=self.roster.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    # Checks

    def _check_alive(self) -> None:
        if self.state is GroupState.DEAD:
            raise _refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {self.group_id} is being removed")

    def _check_generation(
        self, *, generation_id: int, member_id: str, group_instance_id: str | None
    ) -> Member:
        self._check_alive()
        member = self.roster.check(member_id, group_instance_id)
        if generation_id != self.generation_id:
            raise _refuse(
                ErrorCode.ILLEGAL_GENERATION, f"generation {generation_id} is not {self.generation_id}"
            )
        return member

    def _check_protocol(self, request: SyncRequest) -> None:
        wrong_type = request.protocol_type not in (None, self.roster.protocol_type)
        if wrong_type or request.protocol_name not in (None, self.protocol_name):
            raise _refuse(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the group uses {self.protocol_name!r} of {self.roster.protocol_type!r}",
            )

    def _check_size(self, member_id: str, now_ms: int) -> None:
        """GROUP_MAX_SIZE_REACHED for newcomers to a full group, and in a rebalance for whoever joins late."""
        member = self.roster.get(member_id)
        if self.state is GroupState.PREPARING:
            full = self._waiting.joining >= self._size_max and (member is None or member.join_token is None)
        else:
            full = len(self.roster) >= self._size_max and member is None
        if not full:
            return
        self.roster.keep_promise(member_id)
        if member is not None:
            self._remove(member_id)
        self._try_complete_join(now_ms)
        raise _refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has its {self._size_max} members")

    # Time

    def _reset_wake(self) -> None:
        deadlines = [self.roster.next_deadline_ms(), self._rebalance_deadline_ms, self._sync_deadline_ms]
        self._waiting.wake_ms = min(
            (deadline for deadline in deadlines if deadline is not None), default=None
        )


def _is_due(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and deadline_ms <= now_ms


def _refuse(code: ErrorCode, message: str) -> BrokerError:
    return BrokerError(message, code=code)


def _rejoin() -> BrokerError:
    return _refuse(ErrorCode.REBALANCE_IN_PROGRESS, "the group is rebalancing: join again")
