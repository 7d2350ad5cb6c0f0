"""The budget for request bytes: counted, queued for in order, shared by listeners, never leaked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from tailrace.net import NodeBudget, RequestBudget
from tailrace.net.budget import (
    GRACE_S,
    LISTENERS,
    RATE_BYTES_PER_S,
    REQUEST_BYTES_MAX,
    SMALL_REQUEST_BYTES,
    Claim,
    Holding,
    Pace,
    SharedBytes,
)


def test_takes_while_there_is_room_and_refuses_past_it() -> None:
    budget = RequestBudget(100)
    assert budget.take_nowait(60) and budget.take_nowait(40)
    assert not budget.take_nowait(1)
    budget.give(40)
    assert budget.take_nowait(40)


def test_grants_in_the_order_of_asking() -> None:
    budget = RequestBudget(100)
    granted: list[str] = []
    assert budget.take_nowait(100)
    budget.wait(80, lambda: granted.append("large"))
    budget.wait(10, lambda: granted.append("small"))
    budget.give(50)
    assert granted == []  # the small one does not overtake
    budget.give(50)
    assert granted == ["large", "small"] and budget.used == 90


def test_nobody_takes_past_those_who_wait() -> None:
    budget = RequestBudget(100)
    assert budget.take_nowait(90)
    budget.wait(50, lambda: None)
    assert budget.exhausted and not budget.take_nowait(5)


def test_a_frame_larger_than_the_budget_is_granted_when_it_is_alone() -> None:
    budget = RequestBudget(100)
    granted: list[int] = []
    assert budget.take_nowait(1)
    budget.wait(500, lambda: granted.append(500))
    assert granted == []
    budget.give(1)
    assert granted == [500] and budget.used == 500
    budget.give(500)
    assert budget.take_nowait(500)


def test_a_withdrawn_claim_lets_the_next_one_through() -> None:
    budget = RequestBudget(100)
    granted: list[str] = []
    assert budget.take_nowait(50)
    first = budget.wait(80, lambda: granted.append("first"))
    budget.wait(50, lambda: granted.append("second"))
    budget.withdraw(first)
    assert granted == ["second"] and budget.used == 100 and not budget.exhausted


def test_a_claim_withdrawn_after_it_was_granted_gives_its_bytes_back() -> None:
    budget = RequestBudget(100)
    assert budget.take_nowait(100)
    claim = budget.wait(80, lambda: None)
    budget.give(100)
    assert budget.used == 80
    budget.withdraw(claim)
    assert budget.used == 0


def test_giving_back_more_than_was_taken_is_a_bug() -> None:
    budget = RequestBudget(100)
    assert budget.take_nowait(10)
    with pytest.raises(AssertionError, match="given back"):
        budget.give(11)


def test_small_requests_have_a_reserve_and_need_not_wait_for_large_ones() -> None:
    budget = RequestBudget(100, reserve_bytes=20, small_bytes=10)
    granted: list[str] = []
    assert budget.take_nowait(95)
    budget.wait(50, lambda: granted.append("large"))
    assert not budget.take_nowait(11)
    assert budget.take_nowait(10)
    assert budget.take_nowait(10)
    assert not budget.take_nowait(10), "the reserve has an end"
    assert granted == []
    budget.give(95)
    assert granted == ["large"] and budget.used == 70


def test_small_requests_do_not_take_what_a_large_one_waits_for() -> None:
    budget = RequestBudget(100, reserve_bytes=20, small_bytes=10)
    granted: list[str] = []
    assert budget.take_nowait(60)
    budget.wait(50, lambda: granted.append("large"))
    assert budget.take_nowait(10) and budget.take_nowait(10)
    assert not budget.take_nowait(10), "40 bytes are free, and they are the large one's"
    budget.give(10)
    assert budget.take_nowait(10), "what a small one gives back is there for the next one"
    budget.give(30)
    assert granted == ["large"] and budget.used == 100


# ---- the shares of a node


class Shares:
    """Three budgets with 100 kept bytes each, and 300 shared ones."""

    def __init__(self) -> None:
        self.shared = SharedBytes(300)
        self.one, self.two, self.three = (RequestBudget(100, shared=self.shared) for _ in range(3))
        self.granted: list[str] = []

    def wait(self, budget: RequestBudget, size: int, name: str) -> Claim:
        return budget.wait(size, lambda: self.granted.append(name))


def test_a_node_shares_half_and_keeps_a_sixth_for_each_listener() -> None:
    node = NodeBudget(6000)
    kafka, native, http = (node.share(name) for name in LISTENERS)
    assert [each.bytes_max for each in node.shares.values()] == [4000] * 3
    assert kafka.take_nowait(3500), "its sixth but for what small requests keep, and the half"
    assert kafka.take_nowait(500) and kafka.used == 4000, (
        "small as this node is, every request is a small one"
    )
    assert not kafka.take_nowait(1)
    for other in (native, http):
        assert other.take_nowait(500) and other.take_nowait(500) and not other.take_nowait(1)
    assert sum(each.used for each in node.shares.values()) == 6000


def test_large_requests_leave_half_of_a_sixth_to_small_ones() -> None:
    budget = NodeBudget().share("native")
    size = REQUEST_BYTES_MAX // 192
    taken = 0
    while budget.take_nowait(size):
        taken += size
    assert taken == REQUEST_BYTES_MAX * 7 // 12
    assert not budget.take_nowait(SMALL_REQUEST_BYTES + 1) and budget.take_nowait(SMALL_REQUEST_BYTES)


def test_a_listener_that_takes_everything_shared_leaves_the_others_their_own() -> None:
    shares = Shares()
    assert shares.one.take_nowait(400) and not shares.one.take_nowait(1)
    shares.wait(shares.one, 50, "one")
    assert shares.two.take_nowait(100) and not shares.two.take_nowait(1)
    assert shares.three.take_nowait(60) and shares.three.take_nowait(40)
    assert shares.shared.used == 300


def test_what_is_given_back_refills_the_shared_bytes_first() -> None:
    shares = Shares()
    assert shares.one.take_nowait(250)
    shares.one.give(100)
    assert shares.shared.used == 50 and shares.one.used == 150
    shares.one.give(150)
    assert shares.shared.used == 0 and shares.one.used == 0


def test_a_listener_hears_that_another_gave_shared_bytes_back() -> None:
    shares = Shares()
    assert shares.one.take_nowait(400) and shares.two.take_nowait(100)
    shares.wait(shares.two, 50, "two")
    shares.one.give(49)
    assert shares.granted == []
    shares.one.give(1)
    assert shares.granted == ["two"] and shares.two.used == 150 and not shares.two.exhausted


def test_listeners_take_turns_at_the_shared_bytes() -> None:
    shares = Shares()
    assert shares.one.take_nowait(400) and shares.two.take_nowait(100) and shares.three.take_nowait(100)
    for number in range(3):
        shares.wait(shares.two, 50, f"two {number}")
        shares.wait(shares.three, 50, f"three {number}")
    shares.one.give(300)
    assert shares.granted == [f"{name} {number}" for number in range(3) for name in ("two", "three")]


def test_while_a_listener_waits_for_shared_bytes_no_other_takes_them() -> None:
    shares = Shares()
    assert shares.one.take_nowait(200)
    shares.wait(shares.two, 350, "two")
    assert not shares.one.take_nowait(10), "many of these would keep the large one waiting for ever"
    assert shares.three.take_nowait(100) and not shares.three.take_nowait(1)
    shares.one.give(50)
    assert shares.granted == ["two"] and shares.shared.used == 300


def test_a_claim_that_waits_for_other_listeners_is_passed_by_those_that_do_not() -> None:
    shares = Shares()
    assert shares.one.take_nowait(400)
    shares.wait(shares.two, 150, "large")
    assert shares.two.take_nowait(80) and not shares.two.take_nowait(30)
    shares.wait(shares.two, 30, "kept")
    assert not shares.two.take_nowait(10), "it would pass one that waits for the kept bytes"
    shares.two.give(80)
    assert shares.granted == ["kept"]
    shares.one.give(150)
    assert shares.granted == ["kept", "large"] and shares.shared.used == 230


def test_a_claim_over_the_shared_bytes_is_not_passed() -> None:
    shares = Shares()
    assert shares.one.take_nowait(1) and shares.two.take_nowait(50)
    shares.wait(shares.two, 380, "large")
    shares.wait(shares.two, 10, "small")
    assert shares.granted == [] and not shares.two.take_nowait(10)
    shares.two.give(29)
    assert shares.granted == [], "the small one would take what the large one needs"
    shares.two.give(1)
    assert shares.granted == ["large"], "20 + 380 are all that the listener may use"
    shares.two.give(10)
    assert shares.granted == ["large", "small"]


def test_a_frame_larger_than_its_listener_may_use_waits_until_it_is_alone() -> None:
    shares = Shares()
    assert shares.one.take_nowait(101) and shares.two.take_nowait(1) and shares.three.take_nowait(100)
    shares.wait(shares.two, 1000, "huge")
    shares.two.give(1)
    assert shares.granted == [], "a shared byte is taken"
    shares.one.give(1)
    assert shares.granted == ["huge"] and shares.shared.used == 900
    assert not shares.three.take_nowait(1)
    shares.two.give(1000)
    assert shares.shared.used == 0 and shares.three.take_nowait(300)


def test_a_withdrawn_claim_lets_the_next_listener_through() -> None:
    shares = Shares()
    assert shares.one.take_nowait(300) and shares.three.take_nowait(100)
    first = shares.wait(shares.two, 350, "two")
    shares.wait(shares.three, 50, "three")
    shares.two.withdraw(first)
    assert shares.granted == ["three"] and not shares.two.exhausted and not shares.shared.turns


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_and_nobody_waits_for_ever(seed: int) -> None:
    """At random: the bounds hold after every step, and when all is given back every claim was granted."""
    rng = random.Random(seed)
    shared = SharedBytes(300)
    budgets = [RequestBudget(80, reserve_bytes=20, small_bytes=5, shared=shared) for _ in range(3)]
    held: list[tuple[RequestBudget, int]] = []
    waiting: list[tuple[RequestBudget, Claim]] = []
    for _ in range(2000):
        if rng.random() < 0.5 and held:
            budget, size = held.pop(rng.randrange(len(held)))
            budget.give(size)
        else:
            budget = rng.choice(budgets)
            size = rng.choice((1, 5, 40, 90, 200, 350, 600))
            if budget.take_nowait(size):
                held.append((budget, size))
            else:
                claim = budget.wait(size, lambda: None)
                waiting.append((budget, claim))
        if rng.random() < 0.1 and waiting:
            budget, claim = waiting.pop(rng.randrange(len(waiting)))
            budget.withdraw(claim)
        held += [(each, claim.bytes) for each, claim in waiting if claim.taken]
        waiting = [pair for pair in waiting if not pair[1].taken]
        for each in budgets:
            assert each.used == sum(size for budget, size in held if budget is each)
            assert each.exhausted == any(budget is each for budget, _ in waiting)
        huge = any(size > 380 for _, size in held)
        assert huge or (shared.used <= 300 and sum(each.used for each in budgets) <= 600)
    while held:
        budget, size = held.pop()
        budget.give(size)
        held += [(each, claim.bytes) for each, claim in waiting if claim.taken]
        waiting = [pair for pair in waiting if not pair[1].taken]
    assert not waiting and shared.used == 0 and not shared.turns
    for each in budgets:
        assert each.used == 0 and each.take_nowait(380)
        each.give(380)


# ---- a request of unknown size


def test_a_holding_grows_and_shrinks() -> None:
    async def main() -> None:
        budget = RequestBudget(100)
        holding = Holding(budget)
        await holding.resize(60)
        await holding.resize(100)
        assert budget.used == holding.bytes == 100
        await holding.resize(30)
        assert budget.used == holding.bytes == 30
        holding.release()
        holding.release()
        assert budget.used == holding.bytes == 0

    asyncio.run(main())


def test_two_that_hold_and_need_more_do_not_wait_for_each_other() -> None:
    async def main() -> None:
        budget = RequestBudget(100)
        first, second = Holding(budget), Holding(budget)
        await first.resize(50)
        await second.resize(50)
        both = [asyncio.create_task(each.resize(80)) for each in (first, second)]
        await asyncio.sleep(0)
        await both[0]
        assert budget.used == 130 and not both[1].done(), "the first has the pass"
        first.release()
        await asyncio.wait_for(both[1], 60)
        assert budget.used == second.bytes == 80

    asyncio.run(main())


def test_one_that_is_cancelled_while_it_waits_holds_nothing() -> None:
    async def main() -> None:
        budget = RequestBudget(100)
        assert budget.take_nowait(40)
        passed, holding = Holding(budget), Holding(budget)
        await passed.resize(1)
        await passed.resize(11)
        await holding.resize(49)
        await passed.resize(12)
        growing = asyncio.create_task(holding.resize(70))
        await asyncio.sleep(0)
        assert "1 waiting" in repr(budget) and budget.used == 101
        growing.cancel()
        await asyncio.gather(growing, return_exceptions=True)
        assert budget.used == 101 and holding.bytes == 49 and not budget.exhausted
        holding.release()
        passed.release()
        assert budget.used == 40

    asyncio.run(main())


def test_a_request_that_grows_is_small_only_while_all_of_it_is() -> None:
    async def main() -> None:
        budget = RequestBudget(100, reserve_bytes=20, small_bytes=10)
        assert budget.take_nowait(100)
        holding = Holding(budget)
        await holding.resize(5)
        await holding.resize(10)
        assert budget.used == 110, "out of the reserve"
        other = Holding(budget)
        await other.resize(5)
        budget.begin(other)
        assert budget.grow_nowait(other, 1), "which takes the pass"
        growing = asyncio.create_task(holding.resize(11))
        await asyncio.sleep(0)
        assert not growing.done() and budget.used == 116
        budget.give(100)
        await asyncio.wait_for(growing, 60)
        assert budget.used == 17

    asyncio.run(main())


@pytest.mark.parametrize("after", [2, 5, 9, 20])
def test_a_budget_that_is_resized_counts_the_same_bytes(after: int) -> None:
    budget = RequestBudget(8)
    assert budget.take_nowait(6)
    budget.resize(after)
    assert budget.used == 6
    assert budget.take_nowait(3) == (after >= 9)
    budget.give(budget.used)
    assert budget.used == 0 and budget.take_nowait(after) and not budget.take_nowait(1)


def test_a_budget_that_grows_grants_what_waits() -> None:
    budget, granted = RequestBudget(8), []
    assert budget.take_nowait(8)
    budget.wait(4, lambda: granted.append(4))
    budget.wait(9, lambda: granted.append(9))
    budget.resize(12)
    assert granted == [4]
    budget.give(12)
    assert granted == [4, 9]


# ---- requests that arrive piece by piece


class Sender:
    """A request that arrives, and says of itself what a test wants."""

    def __init__(self, budget: RequestBudget, address: str = "192.0.2.1") -> None:
        self._budget = budget
        self.address = address
        self.held_bytes = 0
        self.slow = False
        self.refused = False

    def begin(self, size: int) -> bool:
        if not self._budget.begin_nowait(self.address, size):
            return False
        self.held_bytes = size
        self._budget.begin(self)
        return True

    def grow(self, size: int) -> bool:
        grows = self._budget.grow_nowait(self, size)
        self.held_bytes += size * grows
        return grows

    def wait(self, size: int, order: list[str]) -> None:
        self._budget.wait_growth(self, size, lambda: order.append(self.address))

    def end(self) -> None:
        self._budget.finish(self)
        held, self.held_bytes = self.held_bytes, 0
        self._budget.give(held)

    def is_slow(self, now: float) -> bool:
        return self.slow

    def refuse_slow(self) -> None:
        self.refused = True
        self.end()


def in_loop(scenario: Callable[[], None]) -> None:
    async def main() -> None:
        scenario()

    asyncio.run(main())


def test_of_requests_that_grow_one_has_the_pass_until_it_is_complete() -> None:
    def scenario() -> None:
        budget, order = RequestBudget(100), list[str]()
        first, second, third = (Sender(budget, f"192.0.2.{n}") for n in (1, 2, 3))
        assert first.begin(30) and second.begin(30) and third.begin(40)
        assert second.grow(500) and second.grow(500), "whatever is there"
        assert not first.grow(10) and not third.grow(10)
        third.wait(10, order)
        first.wait(20, order)
        second.end()
        assert order == ["192.0.2.3", "192.0.2.1"], "the one that waited longest, then what there is room for"
        assert budget.used == 30 + 40 + 30

    in_loop(scenario)


def test_the_pass_goes_on_when_its_request_is_gone() -> None:
    def scenario() -> None:
        budget, order = RequestBudget(100), list[str]()
        first, second = Sender(budget, "192.0.2.1"), Sender(budget, "192.0.2.2")
        assert first.begin(50) and second.begin(50)
        assert first.grow(1_000)
        second.wait(1_000, order)
        budget.finish(first)  # it is complete, and what it holds is not answered yet
        assert order == ["192.0.2.2"] and budget.used == 2_100

    in_loop(scenario)


def test_an_address_that_holds_much_waits_for_those_that_hold_little() -> None:
    def scenario() -> None:
        budget, order = RequestBudget(100), list[str]()
        crowd = [Sender(budget, "192.0.2.66") for _ in range(3)]
        assert all(each.begin(30) for each in crowd)
        modest = Sender(budget, "192.0.2.1")
        assert modest.begin(10)
        assert crowd[0].grow(1)  # which has the pass
        crowd[1].wait(20, order)
        budget.wait(20, lambda: order.append("another of the crowd"), address="192.0.2.66")
        modest.wait(20, order)
        budget.wait(5, lambda: order.append("a stranger"), address="192.0.2.2")
        crowd[2].end()
        assert order[:2] == ["192.0.2.1", "a stranger"]

    in_loop(scenario)


def test_the_first_step_of_a_large_request_is_small_for_an_address_with_few_of_them() -> None:
    def scenario() -> None:
        budget = RequestBudget(100, reserve_bytes=40, small_bytes=10)
        assert budget.take_nowait(100)
        crowd = [Sender(budget, "192.0.2.66") for _ in range(4)]
        assert [each.begin(10) for each in crowd] == [True, True, False, False]
        assert Sender(budget, "192.0.2.1").begin(10)
        assert budget.take_nowait(10), "and small requests have what is left"

    in_loop(scenario)


def test_while_something_waits_those_that_send_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.net.budget._PRESS_S", 0.01)

    async def main() -> None:
        budget = RequestBudget(100)
        slow, quick = Sender(budget), Sender(budget)
        assert slow.begin(60) and quick.begin(40)
        slow.slow = True
        await asyncio.sleep(0.05)
        assert [each.refused for each in (slow, quick)] == [False, False], "nobody needs their bytes"
        await asyncio.wait_for(budget.take(30), 30)
        assert [each.refused for each in (slow, quick)] == [True, False]
        assert budget.used == 70

    asyncio.run(main())


def test_a_pace_is_judged_by_the_last_span_and_not_by_the_waits_for_us() -> None:
    pace, span = Pace(100.0), GRACE_S
    least = int(RATE_BYTES_PER_S * span)
    assert not pace.is_slow(0, 100 + span / 2), "it may have this long"
    assert not pace.is_slow(10 * least, 100 + span)
    assert pace.is_slow(10 * least, 100 + 2 * span), "what came before does not count again"
    pace.restart(200.0)
    pace.waited(50.0)
    assert not pace.is_slow(0, 250 + span / 2) and pace.is_slow(least - 1, 250 + span)


CROWD, MODEST, OTHER = "192.0.2.66", "192.0.2.1", "192.0.2.2"
STEP = 1 << 20


def full_of_a_crowd() -> tuple[RequestBudget, Sender]:
    """A budget that is full, and the one of its two senders that has the pass; both are of one address."""
    budget = RequestBudget(30 * STEP)
    first, second = Sender(budget, CROWD), Sender(budget, CROWD)
    assert first.begin(10 * STEP) and second.begin(10 * STEP) and first.grow(STEP)
    assert budget.take_nowait(5 * STEP)
    return budget, first


def test_a_request_grows_while_an_address_that_holds_much_has_the_pass() -> None:
    def scenario() -> None:
        budget, crowd = full_of_a_crowd()
        modest = Sender(budget, MODEST)
        assert modest.begin(2 * STEP) and crowd.grow(5 * STEP), "it has the pass, and now nothing is free"
        assert not Sender(budget, CROWD).grow(STEP)
        assert modest.grow(STEP) and modest.grow(5 * STEP)
        assert not modest.grow(1), "up to 8 MiB, so that the bound is exceeded by a known amount"
        assert budget.used == (10 + 10 + 1 + 5 + 2 + 5 + 6) * STEP

    in_loop(scenario)


@pytest.mark.parametrize("how", ["complete", "too large"])
def test_one_request_at_a_time_has_the_second_pass(how: str) -> None:
    def scenario() -> None:
        budget, crowd = full_of_a_crowd()
        first, second, order = Sender(budget, MODEST), Sender(budget, OTHER), list[str]()
        assert first.begin(STEP) and second.begin(STEP) and crowd.grow(5 * STEP)
        assert first.grow(2 * STEP) and not second.grow(2 * STEP)
        second.wait(2 * STEP, order)
        if how == "complete":
            first.end()
        else:
            assert not first.grow(8 * STEP)
        assert order == [OTHER]

    in_loop(scenario)


def test_while_a_modest_address_has_the_pass_there_is_no_second_one() -> None:
    def scenario() -> None:
        budget = RequestBudget(30 * STEP)
        crowd = [Sender(budget, f"192.0.2.{n}") for n in range(6)]
        assert all(each.begin(5 * STEP) for each in crowd)
        assert crowd[0].grow(STEP) and not crowd[1].grow(STEP)

    in_loop(scenario)
