"""An event loop in a thread of its own: what callers are told at its end, from inside, and after a fork."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

from tailrace.client.error import ClientClosed
from tailrace.client.loop_thread import LoopThread

DEADLINE_S = 60.0


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("tested")
    yield thread
    thread.close()


async def answer() -> int:
    return 42


def test_a_coroutine_runs_there_and_its_result_comes_back(thread: LoopThread) -> None:
    assert thread.call(answer()) == 42


def test_who_waits_at_the_end_is_told_that_it_is_the_end(thread: LoopThread) -> None:
    begun = threading.Event()
    told: list[BaseException] = []

    async def never() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            thread.call(never())
        except ClientClosed as error:
            told.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert begun.wait(DEADLINE_S)
    thread.close()
    waiting.join(DEADLINE_S)
    assert "closed before it was done" in str(told[0])


def test_after_the_end_nothing_is_taken(thread: LoopThread) -> None:
    thread.close()
    thread.close()
    with pytest.raises(ClientClosed, match="this is closed"):
        thread.call(answer())
    assert not thread.post(lambda: None)


def test_its_own_callbacks_are_refused_and_not_waited_for(thread: LoopThread) -> None:
    async def inside() -> None:
        thread.call(answer())

    with pytest.raises(ClientClosed, match="its own callbacks"):
        thread.call(inside())


def test_a_process_that_was_forked_off_is_told_so(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        with pytest.raises(ClientClosed, match="Make one after the fork"):
            thread.call(answer())
        assert not thread.post(lambda: None)
        thread.close()  # which is not this process's to do
    assert thread.call(answer()) == 42
