"""Which event loop a node of its own runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it can be had; plain asyncio works too."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
