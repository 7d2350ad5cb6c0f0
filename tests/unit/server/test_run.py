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
    import signal
    from tailrace.server.run import _signals

    signal.signal(signal.SIGHUP, signal.SIG_{hangup})  # whatever we have inherited

    async def stay():
        with _signals(asyncio.Event()):
            print("there", flush=True)
            while True:
                await asyncio.sleep(0.1)
                print("still there", flush=True)

    asyncio.run(stay())
"""


def stuck(*, hangup: str) -> subprocess.Popen[str]:
    """A process whose node does not stop; `hangup` is what SIGHUP does before it has anything to say."""
    code = "\n".join(line[4:] for line in STUCK.replace("{hangup}", hangup).splitlines())
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
def test_the_second_signal_ends_a_node_that_does_not_stop(number: int) -> None:
    with stuck(hangup="DFL") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(number)
        # It has gone on after the first one.
        for _ in range(3):
            assert process.stdout.readline() == "still there\n"
        process.send_signal(number)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + number


def test_under_nohup_a_terminal_may_go() -> None:
    with stuck(hangup="IGN") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        for _ in range(2):
            process.send_signal(signal.SIGHUP)
            for _ in range(3):
                assert process.stdout.readline() == "still there\n"
        process.kill()
        process.communicate(timeout=DEADLINE_S)


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
