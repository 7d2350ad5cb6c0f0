"""A node as a process, from inside: how it fails, and what signals do, with real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace
from tailrace.model import StorageError
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node
from tailrace.server.run import run_server

DEADLINE_S = 60


def test_a_node_that_fails_ends_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(node: Node) -> Exception:
        assert (tmp_path / "tailrace.ports.json").exists()
        return StorageError("sync", str(tmp_path), "Input/output error", hint="Replace the disk")

    monkeypatch.setattr(Node, "wait_failed", fail)
    with pytest.raises(StorageError, match=r"Input/output error. Replace the disk"):
        run_server(ServerConfig(kafka_port=0, native_port=0, data_dir=tmp_path))
    assert not (tmp_path / "tailrace.ports.json").exists()


STUCK = """
    import asyncio
    from tailrace.server.run import _signals

    async def stay():
        with _signals(asyncio.Event()):
            print("there", flush=True)
            while True:
                await asyncio.sleep(0.1)
                print("still there", flush=True)

    asyncio.run(stay())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_the_second_signal_ends_a_node_that_does_not_stop(number: int) -> None:
    code = "\n".join(line[4:] for line in STUCK.splitlines())
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(number)
        # It has gone on after the first one.
        for _ in range(3):
            assert process.stdout.readline() == "still there\n"
        process.send_signal(number)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + number


def test_a_process_knows_its_age() -> None:
    code = "import time; from tailrace.server.run import process_age_s as age; time.sleep(0.2); print(age())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert 0.2 <= float(done.stdout) < DEADLINE_S
