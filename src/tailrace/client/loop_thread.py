"""An event loop in a thread of its own, for callers that are not asynchronous.

The thread is a daemon: a program that forgets to close its producer can still end. What is handed over before
the end gets an answer, if only that it is the end; afterwards, and in a process that was forked off, where
there is no such thread, callers are told so at once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tailrace.client.error import ClientClosed

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._process_id = os.getpid()
        self._handing = threading.Lock()  # over the two below, and whatever is handed to the loop
        self._is_stopping = False
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_elsewhere(self) -> bool:
        """Whether this process was forked off from the one that has the thread."""
        return os.getpid() != self._process_id

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for its result. Ctrl-C here cancels it there."""
        try:
            self.check_caller()
            with self._handing:
                if self._is_over:
                    raise ClientClosed("this is closed")
                future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except ClientClosed:
            work.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientClosed("this was closed before it was done") from None
        except BaseException:
            future.cancel()
            raise

    def post(self, callback: Callable[[], object]) -> bool:
        """Have the loop call something soon; False where nobody will."""
        if self.is_elsewhere:
            return False
        with self._handing:
            if not self._is_over:
                self.loop.call_soon_threadsafe(callback)
            return not self._is_over

    def check_caller(self) -> None:
        """Refuse whoever would wait for ever: the loop itself, and a process that has no such thread."""
        if threading.current_thread() is self._thread:
            raise ClientClosed("this cannot be called from its own callbacks")
        if self.is_elsewhere:
            raise ClientClosed(
                f"this belongs to process {self._process_id}, from which process {os.getpid()} was forked."
                " Make one after the fork"
            )

    def close(self) -> None:
        """Stop the loop and wait for the thread; what still runs in it is cancelled."""
        if self.is_elsewhere:
            return
        with self._handing:
            if not (self._is_stopping or self._is_over):
                self._is_stopping = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            with self._handing:
                self._is_over = True
            self.loop.run_until_complete(self._cancel_all())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()  # here, so that whoever stops the loop from inside has it closed too

    async def _cancel_all(self) -> None:
        await asyncio.sleep(0)  # what was handed over in the last moment is a task by now
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
