"""Another Python, with what this one imports from; it lives no longer than we wait for it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping

from tailrace.model import TailraceError

_TIMEOUT_S = 600


async def run_python(module: str, *args: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a module to its end and return what it printed; TailraceError with its last words if it failed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *args,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(environment or {})},
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,  # a Ctrl-C is ours to handle: it ends the child through us
    )
    try:
        printed, complaint = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = (complaint.decode(errors="replace").strip() or "no message").splitlines()[-1]
        raise TailraceError(f"{module} ended with exit code {process.returncode}: {last}")
    return printed.decode()
