"""examples/seed001 as its README has it: three samples of code and its command lines run as written.

The samples are verbatim. `client`, from which they import, is the example's, and takes port 9999 for the port
of the broker that this test has started. The second sample lacks `import time`, and is ended as a person ends
it.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

import tailrace
from tailrace.client import BrokerClient

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "seed001"
DEADLINE_S = 60
NAMES = ("subscriber-1", "subscriber-2")

PUBLISHING = """
from client import BrokerClient

# Create client
client = BrokerClient(host='localhost', port=9999, client_id='publisher-1')
client.connect()

# Create a topic
client.create_topic('events')

# Publish messages
client.publish_text('events', 'Hello, World!')
client.publish_text('events', 'Another message', custom_property='value')

client.disconnect()
"""

SUBSCRIBING = """
from client import BrokerClient

def message_handler(message):
    print(f"Received: {message.body.decode('utf-8')}")

# Create client
client = BrokerClient(host='localhost', port=9999, client_id='subscriber-1')
client.connect()

# Create a subscription for the topic
client.create_subscription('my-consumer-group', 'events', start_offset=0)

# Join the subscription
client.subscribe_to_subscription('my-consumer-group', handler=message_handler)

# Keep running to receive messages
try:
    while True:
        time.sleep(1)
except KeyboardInterrupt:
    client.unsubscribe_from_subscription('my-consumer-group')
    client.disconnect()
"""

SHARING = """
# Subscriber 1
client1 = BrokerClient(client_id='subscriber-1')
client1.connect()
client1.subscribe_to_subscription('my-consumer-group', handler=message_handler)

# Subscriber 2 (joins same subscription)
client2 = BrokerClient(client_id='subscriber-2')
client2.connect()
client2.subscribe_to_subscription('my-consumer-group', handler=message_handler)

# Messages will be distributed round-robin between subscriber-1 and subscriber-2
"""

# The example's client, but for the port; and each client tells its handler's messages apart from the other's.
CLIENT = """
    import importlib.util, os, sys, threading

    spec = importlib.util.spec_from_file_location("example", os.environ["EXAMPLE"])
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)

    class WholeLines:  # threads print at once, and one print is several writes
        def __init__(self):
            self._begun = threading.local()

        def write(self, text):
            lines, end, rest = (getattr(self._begun, "text", "") + text).rpartition("\\n")
            self._begun.text = rest
            os.write(1, (lines + end).encode())

        def flush(self):
            pass

    sys.stdout = WholeLines()

    class BrokerClient(example.BrokerClient):
        def __init__(self, host="localhost", port=9999, client_id=None):
            assert port == 9999
            super().__init__(host, int(os.environ["PORT"]), client_id)

        def subscribe_to_subscription(self, name, handler):
            def told(message):
                handler(message)
                print(self.client_id, "got", message.offset, flush=True)

            super().subscribe_to_subscription(name, handler=told)
"""


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory from which `client` can be imported."""
    (tmp_path / "client.py").write_text(textwrap.dedent(CLIENT), encoding="utf-8")
    return tmp_path


@contextmanager
def python(*args: str, cwd: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Another Python, ended if it does not end by itself."""
    process = subprocess.Popen(
        [sys.executable, "-u", *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def running(code: str, broker: tailrace.Broker, home: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {"PORT": str(broker.native_port), "EXAMPLE": str(EXAMPLE / "client.py")}
    with python("-c", code, cwd=home, **environment) as process:
        yield process


def stdout_of(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str]:
    """What a program that was ended by Ctrl-C leaves behind."""
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, err


# ---- the samples


def test_the_publishing_sample(broker: tailrace.Broker, home: Path) -> None:
    with running(PUBLISHING, broker, home) as process:
        assert process.communicate(timeout=DEADLINE_S) == ("", "")
    assert process.returncode == 0
    first, second = broker.read("events")
    assert (first.value, second.value) == (b"Hello, World!", b"Another message")
    assert (first.headers, second.headers) == ((), (("custom_property", b"value"),))


ASLEEP = "asleep\n"
TELLING_TIME = """
import time as real

class time:
    @staticmethod
    def sleep(seconds):
        print("asleep", flush=True)
        real.sleep(seconds)
"""
"""The sample's missing `import time`, telling when it waits."""


def test_the_subscribing_sample(broker: tailrace.Broker, home: Path) -> None:
    with BrokerClient(port=broker.native_port) as client:
        client.create_topic("events")
        client.publish_text("events", "Hello, World!")
        with running(TELLING_TIME + SUBSCRIBING, broker, home) as process:
            printed = iter(stdout_of(process))
            lines = (line for line in printed if line != ASLEEP)
            assert [next(lines), next(lines)] == ["Received: Hello, World!\n", "subscriber-1 got 0\n"]
            client.publish_text("events", "Another message")
            assert [next(lines), next(lines)] == ["Received: Another message\n", "subscriber-1 got 1\n"]
            assert next(printed) == ASLEEP  # so Ctrl-C meets the loop, and not what stands before it
            assert interrupted(process) == (0, "")
        assert client.pull("my-consumer-group", wait_ms=0) == [], "what was handled was not acknowledged"


def test_the_sharing_sample(broker: tailrace.Broker, home: Path) -> None:
    """It goes on from the second one: its handler, its subscription, and its way to keep running."""
    head, rest = SUBSCRIBING.split("# Create client")
    waiting = rest[rest.index("# Keep running") :].partition("except")[0]
    ending = "except KeyboardInterrupt:\n    client1.disconnect()\n    client2.disconnect()\n"
    with BrokerClient(port=broker.native_port) as client:
        client.create_topic("events")
        client.create_subscription("my-consumer-group", "events")
        with running(
            f"import time\n{head}{SHARING}print('joined')\n{waiting}{ending}", broker, home
        ) as process:
            lines = iter(stdout_of(process))
            assert next(lines) == "joined\n"
            for index in range(10):
                client.publish_text("events", str(index))
            got = [line for line in (next(lines) for _ in range(20)) if " got " in line]
            assert interrupted(process) == (0, "")
    offsets = {name: [int(line.split()[2]) for line in got if line.startswith(name)] for name in NAMES}
    assert sorted(offsets["subscriber-1"] + offsets["subscriber-2"]) == list(range(10))
    assert [len(each) for each in offsets.values()] == [5, 5]


# ---- the command lines


@pytest.mark.slow
def test_the_server_and_its_command_lines(tmp_path: Path) -> None:
    data_dir = tmp_path / "storage" / "data"
    # The usual ones may be in use here.
    ports = {"QB_SERVER_PORT": "0", "TAILRACE_SERVER__KAFKA_PORT": "0", "TAILRACE_HTTP__PORT": "0"}
    with python(str(EXAMPLE / "server.py"), cwd=tmp_path, **ports) as server:
        assert "ready\n" in iter(stdout_of(server))
        port = json.loads((data_dir / "tailrace.ports.json").read_text(encoding="utf-8"))["native"]
        node = {"TAILRACE_NODE": f"localhost:{port}"}
        _run("create-topic events --partitions 1", tmp_path, **node)
        _run("create-subscription my-group events --offset 0", tmp_path, **node)
        _run('publish events "Hello World"', tmp_path, **node)
        for line in ("join-subscription my-group", "subscribe events --offset 0"):
            with python(str(EXAMPLE / "client.py"), *shlex.split(line), cwd=tmp_path, **node) as process:
                assert stdout_of(process).readline() == "Hello World\n"
                assert interrupted(process) == (0, "")
        assert interrupted(server)[0] == 0


def _run(line: str, cwd: Path, **environment: str) -> None:
    with python(str(EXAMPLE / "client.py"), *shlex.split(line), cwd=cwd, **environment) as process:
        _out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")


def test_the_server_says_what_keeps_it_from_starting(tmp_path: Path) -> None:
    with python(str(EXAMPLE / "server.py"), cwd=tmp_path, QB_SERVER_PORT="many") as server:
        out, err = server.communicate(timeout=DEADLINE_S)
    assert (server.returncode, out) == (1, "")
    assert err.startswith("error: ") and "QB_SERVER_PORT" in err
