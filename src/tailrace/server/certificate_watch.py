"""Looks every few seconds whether the files of listeners' TLS have changed, and has them read again.

Files are looked at, since every tool that renews certificates can write a file, and a container gets
new ones by a mount. Reading them takes milliseconds and happens in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from tailrace.net.tls import ServerTls

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 2.0


def watch_certificates(
    listeners: Sequence[ServerTls], *, every_s: float = LOOK_EVERY_S
) -> Callable[[], None]:
    """Watch until the function that is returned is called."""
    if not listeners:
        return lambda: None
    task = asyncio.get_running_loop().create_task(_watch(listeners, every_s), name="certificates")

    def stop() -> None:
        task.cancel()

    return stop


async def _watch(listeners: Sequence[ServerTls], every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        for each in listeners:
            await asyncio.to_thread(each.reload_if_changed)
