"""Work in a thread that no end waits for.

The threads of a pool are joined when the interpreter ends, so a collector that begins an answer and never
ends it would keep the whole process. This thread is a daemon's: it is left behind wherever it is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

_NAME = "telemetry"


def start_in_thread(work: Callable[[], None]) -> asyncio.Future[Exception | None]:
    """Begin, from the running loop. Done with what `work` raised, or None."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Exception | None] = loop.create_future()

    def run() -> None:
        error: Exception | None = None
        try:
            work()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop has ended, and with it whoever asked
            loop.call_soon_threadsafe(done.set_result, error)

    threading.Thread(target=run, name=_NAME, daemon=True).start()
    return done
