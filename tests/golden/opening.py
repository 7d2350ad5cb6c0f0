"""Opens a golden directory: unpacks its archives, and serves the data with the present code.

The settings keep the clock out of it: nothing is compacted, expired or forgotten while a test looks, however
old the directory has become.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.interop.server import ServerProcess

from tailrace.client import BrokerClient

DATA_0_1 = Path(__file__).parent / "data-0.1"
DATA_0_2 = Path(__file__).parent / "data-0.2"
DATA_0_3 = Path(__file__).parent / "data-0.3"
VARIANTS = ("stopped", "killed")
BROKER_SETTINGS: Mapping[str, object] = {
    "retention.check.interval.ms": 86_400_000,
    "log.cleaner.backoff.ms": 86_400_000,
    "offsets.retention.minutes": 2_000_000_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 86_400_000,
}
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")


def read_manifest(directory: Path) -> Any:
    """What must be served of a golden directory."""
    return json.loads((directory / "manifest.json").read_text(encoding="utf-8"))


def unpack(archive: Path, to: Path) -> Path:
    """The one directory of an archive, made below `to`. Holes of its files stay holes."""
    to.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "r:xz") as packed:
        top = packed.getnames()[0]
        packed.extractall(to, filter="data")
    return to / top


def listeners_with_login(port: int) -> list[dict[str, object]]:
    """The listeners of a server with users: what comes to this port has to log in."""
    return [
        {"name": "kafka", "protocol": "kafka", "address": "127.0.0.1:0"},
        {"name": "secure", "protocol": "kafka", "address": f"127.0.0.1:{port}", "sasl": list(MECHANISMS)},
        {"name": "native", "protocol": "native", "address": "127.0.0.1:0"},
        {"name": "http", "protocol": "http", "address": "127.0.0.1:0"},
    ]


def server_on(data_dir: Path, *, listeners: Sequence[Mapping[str, object]] = ()) -> ServerProcess:
    """A server of the present code, to be used in a `with` block."""
    return ServerProcess(data_dir, listeners=listeners, broker=BROKER_SETTINGS)


@contextmanager
def clock_at(now_ms: int) -> Iterator[None]:
    """Servers that are started in here believe that it is this time of day."""
    paths = [str(Path(__file__).parent / "clock"), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
        patch.setenv("GOLDEN_NOW_MS", str(now_ms))
        yield


def verify(data_dir: Path) -> tuple[int, str]:
    """`tailrace log verify`: its exit code, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "log", "verify", str(data_dir)], capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def http_of(data_dir: Path) -> str:
    """Where the REST API of the running server is."""
    return f"http://127.0.0.1:{_ports(data_dir)['http']}/api/v1"


def client_of(data_dir: Path) -> BrokerClient:
    """A native client of the running server, to be used in a `with` block."""
    return BrokerClient("127.0.0.1", _ports(data_dir)["native"])


def get(url: str) -> Any:
    """One GET."""
    with urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())


def post(url: str, body: Any) -> Any:
    """One POST of JSON."""
    asked = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(asked, timeout=30) as answer:
        return json.loads(answer.read())


def _ports(data_dir: Path) -> dict[str, int]:
    ports: dict[str, int] = json.loads((data_dir / "tailrace.ports.json").read_text())
    return ports
