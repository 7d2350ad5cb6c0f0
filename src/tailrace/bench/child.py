"""What the benchmark runs in a process of its own: `python -m tailrace.bench.child ROLE ...`.

crash DIRECTORY BYTES   write that much durably, then die without closing anything
codec SECONDS           measure the codec with the twin that this process uses, print JSON
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from tailrace.bench.coding import measure_codec
from tailrace.bench.recovering import write_without_closing


async def _crash(directory: Path, bytes_total: int) -> None:
    await write_without_closing(directory, bytes_total)
    os._exit(0)  # inside the loop, so that nothing is closed, flushed or checkpointed


def main(role: str, *args: str) -> None:
    if role == "crash":
        asyncio.run(_crash(Path(args[0]), int(args[1])))
    else:
        print(json.dumps(asdict(measure_codec(seconds=float(args[0])))))


if __name__ == "__main__":
    main(*sys.argv[1:])
