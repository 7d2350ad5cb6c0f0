"""The pool of transactional ids: exclusive, bounded, used again, and never handed out with something open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.broker.transactions.scene import BUSY, T0, U0, Scene, play

from tailrace.broker.transactions import Identity, TransactionConfig, TransactionRefused
from tailrace.broker.transactions.limits import check_client_id, check_pooled_id
from tailrace.broker.transactions.machine import BUMPING_VERSION
from tailrace.broker.transactions.pool import IdPool, Pooled
from tailrace.model import BrokerError, BrokerId, ErrorCode

FIRST, SECOND = "__tailrace-1-0", "__tailrace-1-1"


def pool_of(scene: Scene) -> IdPool:
    return IdPool(scene.coordinator, node_id=BrokerId(1), on_failure=scene.failures.append)


def play_pool(
    scenario: Callable[[Scene, IdPool], Awaitable[None]], config: TransactionConfig | None = None
) -> None:
    async def main(scene: Scene) -> None:
        pool = pool_of(scene)
        try:
            await scenario(scene, pool)
        finally:
            await pool.close()

    play(main, config)


def write(scene: Scene, pooled: Pooled) -> None:
    scene.coordinator.add_nowait(*pooled, [T0], client_version=BUMPING_VERSION)
    scene.places[T0].write(pooled.identity)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_ids_have_the_name_of_the_node_and_belong_to_one_caller_each() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        first, second = await pool.take(), await pool.take()
        assert first == (FIRST, Identity(100, 0)) and second == (SECOND, Identity(101, 0))

    play_pool(scenario)


def test_an_id_that_is_idle_is_taken_again_without_a_record() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        first, second = await pool.take(), await pool.take()
        pool.give_back(first)
        pool.give_back(second)
        before = scene.written()
        assert await pool.take() == second  # the one that came back last
        assert await pool.take() == first
        assert scene.written() == before

    play_pool(scenario)


def test_the_next_caller_goes_on_with_the_identity_after_the_last_transaction() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        pooled = await pool.take()
        write(scene, pooled)
        await scene.coordinator.end(*pooled, commit=True, client_version=BUMPING_VERSION)
        pool.give_back(pooled)
        assert await pool.take() == (FIRST, Identity(100, 1))

    play_pool(scenario)


def test_what_is_open_is_aborted_in_the_turn_in_which_the_id_is_given_back() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        pooled = await pool.take()
        write(scene, pooled)
        pool.give_back(pooled)
        assert scene.written()[-3:] == ["state PrepareAbort", "t-0 abort 100/1", "state CompleteAbort"]
        assert await pool.take() == (FIRST, Identity(100, 1))
        with pytest.raises(TransactionRefused):  # the earlier caller cannot go on
            write(scene, pooled)

    play_pool(scenario)


def test_an_abort_that_the_log_refuses_is_tried_again_and_the_id_is_passed_over() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        pooled = await pool.take()
        write(scene, pooled)
        scene.log.refusals = [BUSY]
        pool.give_back(pooled)
        assert scene.state(FIRST) == "Ongoing"
        assert (await pool.take()).transactional_id == SECOND
        scene.advance(scene.coordinator.config.retry_ms)
        assert scene.state(FIRST) == "CompleteAbort"
        assert (await pool.take()).transactional_id == FIRST

    play_pool(scenario)


def test_a_name_that_an_earlier_process_left_incomplete_is_passed_over() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        pooled = await pool.take()
        write(scene, pooled)
        scene.places[T0].refusals = [BUSY] * 3  # now, and when the next process reads it
        await scene.coordinator.end(*pooled, commit=True, client_version=BUMPING_VERSION)
        assert scene.state(FIRST) == "PrepareCommit"
        await scene.crash()
        assert (await pool_of(scene).take()).transactional_id == SECOND

    play_pool(scenario)


def test_names_are_used_again_after_a_start_with_a_new_epoch() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        pool.give_back(await pool.take())
        await scene.crash()
        assert await pool_of(scene).take() == (FIRST, Identity(100, 1))

    play_pool(scenario)


def test_what_an_earlier_process_left_open_is_aborted_at_the_start() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        write(scene, await pool.take())
        write(scene, await pool.take())
        await scene.begin("a client's own", U0)
        await scene.crash(wait=False)
        following = pool_of(scene)
        following.start()
        await scene.coordinator.wait_loaded()
        await turns()
        assert scene.state(FIRST) == scene.state(SECOND) == "CompleteAbort"
        assert scene.state("a client's own") == "Ongoing"
        assert scene.places[T0].open == {}
        await following.close()

    play_pool(scenario)


def test_one_that_waits_gets_the_id_that_is_given_back_first_come_first_served() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        first, second = await pool.take(), await pool.take()
        waiting = [asyncio.ensure_future(pool.take()) for _ in range(2)]
        await turns()
        assert not any(each.done() for each in waiting)
        before = scene.written()
        pool.give_back(second)
        assert await waiting[0] == second and not waiting[1].done()
        write(scene, first)
        pool.give_back(first)
        assert await waiting[1] == (FIRST, Identity(100, 1))
        assert [line for line in scene.written()[len(before) :] if line == "state Empty"] == []

    play_pool(scenario, TransactionConfig(pooled_ids_max=2))


def test_one_that_waits_too_long_is_told_so() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        taken = await pool.take()
        with pytest.raises(BrokerError, match="1 of at most 1 are in use") as caught:
            await pool.take()
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        pool.give_back(taken)
        assert await pool.take() == taken  # nobody waits for it any more

    play_pool(scenario, TransactionConfig(pooled_ids_max=1, pool_wait_ms=1))


def test_an_id_that_comes_when_its_caller_gives_up_is_not_lost() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        taken = await pool.take()
        waiting = asyncio.ensure_future(pool.take())
        await turns()
        pool.give_back(taken)
        waiting.cancel()  # in the same turn
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert waiting.cancelled()
        assert await pool.take() == taken

    play_pool(scenario, TransactionConfig(pooled_ids_max=1))


def test_a_refused_first_use_costs_no_id() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        scene.log.refusals = [BUSY]
        with pytest.raises(TransactionRefused):
            await pool.take()
        assert (await pool.take()).transactional_id == FIRST

    play_pool(scenario, TransactionConfig(pooled_ids_max=1))


def test_exhausted_epochs_are_left_behind_before_the_next_transaction() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        pooled = await pool.take()
        entry = scene.coordinator.add_nowait(*pooled, [T0], client_version=BUMPING_VERSION)
        await scene.coordinator.end(*pooled, commit=True, client_version=BUMPING_VERSION)
        object.__setattr__(entry.stored, "epoch", 32766)  # as after that many transactions
        pool.give_back(pooled)
        following = await pool.take()
        assert following == (FIRST, Identity(101, 0))

    play_pool(scenario, TransactionConfig(pooled_ids_max=1))


def test_giving_back_twice_is_a_bug() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        taken = await pool.take()
        pool.give_back(taken)
        with pytest.raises(KeyError):
            pool.give_back(taken)

    play_pool(scenario)


def test_a_pool_that_is_closed_gives_out_nothing() -> None:
    async def scenario(scene: Scene, pool: IdPool) -> None:
        await pool.take()
        waiting = asyncio.ensure_future(pool.take())
        await turns()
        await pool.close()
        for work in (waiting, pool.take()):
            with pytest.raises(BrokerError, match="stopping"):
                await work

    play_pool(scenario, TransactionConfig(pooled_ids_max=1))


@pytest.mark.parametrize("name", ["__tailrace-", "__tailrace-1-0", "__tailrace-mine"])
def test_clients_cannot_use_the_names_of_the_node(name: str) -> None:
    with pytest.raises(BrokerError, match=r"reserved.*Choose another") as caught:
        check_client_id(name)
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    check_pooled_id(name)


@pytest.mark.parametrize("name", ["__tailrace", "tailrace-1-0", "x__tailrace-1"])
def test_other_names_are_for_clients_alone(name: str) -> None:
    check_client_id(name)
    with pytest.raises(BrokerError, match="not one that the broker gave out"):
        check_pooled_id(name)
