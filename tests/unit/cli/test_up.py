"""`tailrace up` as a real process, with deadlines: what it prints, serves and leaves, and how it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import tailrace
from tailrace.cli.main import main
from tailrace.client.kafka import KafkaClient
from tailrace.client.offsets import LATEST
from tailrace.model import TopicPartition
from tailrace.records import build_batch, iter_batches

DEADLINE_S = 60
UP = [sys.executable, "-W", "error", "-m", "tailrace", "up"]
PROGRAM = f"{sys.executable} -m tailrace"  # no PATH leads to it


def environment(**more: str) -> dict[str, str]:
    """This one, without what a developer may have set for a broker of his own."""
    ours = ("TAILRACE_", "QB_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**env, "PYTHONPATH": str(Path(tailrace.__file__).parents[1]), **more}


class Server:
    """A broker process that said `ready`, and what it printed until then."""

    def __init__(self, process: subprocess.Popen[str], lines: list[str], data_dir: Path) -> None:
        self.process = process
        self.lines = lines
        self.data_dir = data_dir
        self.ports: dict[str, int | None] = json.loads((data_dir / "tailrace.ports.json").read_text())
        self.bootstrap = f"127.0.0.1:{self.ports['kafka']}"

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, err


@contextmanager
def up(
    cwd: Path, *args: str, port: str | None = "0", native_port: str | None = "0", **env: str
) -> Iterator[Server]:
    ports = [] if port is None else ["--kafka-port", port]
    ports += [] if native_port is None else ["--native-port", native_port]
    ports += [] if "--http-port" in args else ["--http-port", "0"]
    process = subprocess.Popen(
        [*UP, *ports, *args],
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        lines: list[str] = []
        while not lines or lines[-1] != "ready":
            line = process.stdout.readline()
            assert line, f"ended before it was ready: {process.stderr.read()}"
            lines.append(line.rstrip("\n"))
        named = args[args.index("--data-dir") + 1] if "--data-dir" in args else "tailrace-data"
        yield Server(process, lines, cwd / named)
    finally:
        watchdog.cancel()
        end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """Whatever happened, the process and its pipes are gone."""
    with process:
        process.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    """Another process gives no sign; it is asked until its answer is the right one."""
    ends = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.1)


def refused(cwd: Path, *args: str, **env: str) -> tuple[int, str]:
    """Exit code and stderr of a broker that does not start."""
    done = subprocess.run(
        [*UP, *args],
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert "ready" not in done.stdout.splitlines()
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def produce(bootstrap: str, *values: bytes) -> None:
    async def act() -> None:
        async with KafkaClient(bootstrap) as client:
            await client.topic("t", create=True)
            await client.produce("t", 0, build_batch([(1, None, value, ()) for value in values]))

    asyncio.run(act())


def read(bootstrap: str) -> list[bytes | None]:
    async def act() -> list[bytes | None]:
        target = TopicPartition("t", 0)
        async with KafkaClient(bootstrap) as client:
            found = await client.fetch({target: 0})
            batches = list(iter_batches(found[target].records))
            return [record.value for batch in batches for record in batch.records()]

    return asyncio.run(act())


# ---- serving


def test_it_shows_the_listeners_says_ready_and_stops_cleanly(tmp_path: Path) -> None:
    with up(tmp_path) as server:
        address = server.bootstrap
        assert server.lines == [
            f"tailrace {tailrace.__version__}   single node   data ./tailrace-data   fsync commit   "
            + server.lines[0].rpartition("   ")[2],
            f"  Kafka    {address:<24} bootstrap.servers={address}",
            f"  native   127.0.0.1:{server.ports['native']}",
            f"  console  http://127.0.0.1:{server.ports['http']}   REST /api/v1   metrics /metrics",
            server.lines[4],
            f"  Next:  {PROGRAM} tail TOPIC -b {address}     {PROGRAM} bench -b {address}"
            f"     {PROGRAM} --help",
            "ready",
        ]
        assert re.fullmatch(r"  ready in \d+\.\d s", server.lines[4])
        assert server.ports == {
            "pid": server.process.pid,
            "kafka": server.ports["kafka"],
            "native": server.ports["native"],
            "http": server.ports["http"],
        }
        code, err = server.stop()
    assert code == 0, err
    assert not (server.data_dir / "tailrace.ports.json").exists()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\S+ (INFO|WARNING) ", line) for line in err.splitlines()), err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_what_clients_wrote_is_there_after_a_stop_and_a_start(tmp_path: Path, number: int) -> None:
    with up(tmp_path) as server:
        produce(server.bootstrap, b"1", b"2")
        assert read(server.bootstrap) == [b"1", b"2"]
        assert server.stop(number)[0] == 0
    with up(tmp_path, "--fsync", "interval:200") as server:
        assert "fsync interval:200" in server.lines[0]
        assert read(server.bootstrap) == [b"1", b"2"]


def test_the_memory_engine_forgets_and_leaves_no_log(tmp_path: Path) -> None:
    for _ in range(2):
        with up(tmp_path, "--engine", "memory", "--data-dir", "d") as server:
            assert "engine memory" in server.lines[0]
            produce(server.bootstrap, b"1")
            assert read(server.bootstrap) == [b"1"]
            assert server.stop()[0] == 0
        assert os.listdir(tmp_path / "d") == ["LOCK"]


def test_topics_have_four_partitions_on_a_server(tmp_path: Path) -> None:
    async def count(bootstrap: str) -> int:
        async with KafkaClient(bootstrap) as client:
            return len((await client.topic("t", create=True)).partitions)

    with up(tmp_path) as server:
        assert asyncio.run(count(server.bootstrap)) == 4


def test_the_environment_and_the_file_are_obeyed(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text("[storage]\nengine = 'memory'\ndata_dir = 'from-file'\n")
    env = {
        "TAILRACE_SERVER__KAFKA_PORT": "0",
        "TAILRACE_NATIVE__PORT": "0",
        "TAILRACE_STORAGE__DATA_DIR": "tailrace-data",
    }
    with up(tmp_path, "--config", "my.toml", port=None, native_port=None, **env) as server:
        assert "engine memory" in server.lines[0]
    assert os.listdir(tmp_path / "tailrace-data")
    assert not (tmp_path / "from-file").exists()


def test_logs_can_be_json(tmp_path: Path) -> None:
    with up(tmp_path, TAILRACE_LOG__FORMAT="json", TAILRACE_LOG__LEVEL="debug") as server:
        code, err = server.stop()
    assert code == 0
    rows = [json.loads(line) for line in err.splitlines()]
    assert {"time", "level", "logger", "message"} <= rows[0].keys()


def test_the_native_listener_takes_its_port_from_an_older_variable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    with up(tmp_path, native_port=None, QB_SERVER_PORT=str(free), QB_LOG_LEVEL="warning") as server:
        assert json.loads((tmp_path / "tailrace-data/tailrace.ports.json").read_text())["native"] == free
        code, err = server.stop()
    assert (code, err) == (0, "")


def test_it_answers_by_http_until_it_stops(tmp_path: Path) -> None:
    with up(tmp_path) as server:
        base = f"http://127.0.0.1:{server.ports['http']}"
        made = httpx.post(
            f"{base}/api/v1/topics", json={"name": "t", "partitions": 1}, trust_env=False, timeout=60
        )
        assert made.status_code == 201
        produce(server.bootstrap, b"1")
        found = httpx.get(f"{base}/api/v1/topics/t", trust_env=False, timeout=60).json()
        assert found["partition_details"][0]["end_offset"] == 1
        assert server.stop()[0] == 0


def test_a_broker_without_an_http_listener_shows_none(tmp_path: Path) -> None:
    with up(tmp_path, TAILRACE_HTTP__ENABLED="false") as server:
        assert server.ports["http"] is None
        assert not any("console" in line for line in server.lines)
        assert server.stop()[0] == 0


def test_a_killed_broker_starts_again(tmp_path: Path) -> None:
    with up(tmp_path) as server:
        produce(server.bootstrap, b"1")
        server.process.kill()
        server.process.communicate(timeout=DEADLINE_S)
        assert (server.data_dir / "tailrace.ports.json").exists()
    with up(tmp_path) as server:
        assert server.ports["pid"] == server.process.pid
        assert read(server.bootstrap) == [b"1"]


# ---- refusing


@pytest.mark.parametrize("flag", ["--kafka-port", "--native-port", "--http-port"])
def test_a_port_in_use_names_its_owner_and_another_port(tmp_path: Path, flag: str) -> None:
    others = ["--kafka-port", "0", "--native-port", "0", "--http-port", "0"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, err = refused(tmp_path, *others, flag, str(port))
    assert code == 1
    *_, last = err.splitlines()
    assert re.fullmatch(
        rf"error: port {port} is in use by pid {os.getpid()} \(.+\)\. Try: tailrace up {flag} \d+", last
    )


def test_a_data_directory_in_use_names_its_owner(tmp_path: Path) -> None:
    with up(tmp_path) as server:
        for engine in ("segment", "memory"):
            code, err = refused(
                tmp_path, "--kafka-port", "0", "--native-port", "0", "--http-port", "0", "--engine", engine
            )
            assert code == 1
            assert f"the data directory is in use by pid {server.process.pid}" in err
        assert server.stop()[0] == 0


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, err = refused(tmp_path, "--kafka-port", "0", "--data-dir", "file/data")
    assert code == 1
    assert err.splitlines()[-1] == (
        "error: open file/data: Not a directory. Choose a directory that you may write to with --data-dir"
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ["--engine", "tiered"],
            "storage.engine = tiered needs tiered.postgres_dsn",
        ),
        (["--engine", "paper"], "--engine = 'paper' must be segment or memory or tiered"),
        (["--fsync", "never"], "--fsync = 'never' must be commit, interval:<ms>"),
        (["--kafka-port", "70000"], "--kafka-port = '70000' must be a whole number from 0 to 65535"),
        (["--host", "0.0.0.0"], "would serve other machines without encryption"),
        (["--config", "absent.toml"], "cannot read absent.toml: No such file or directory"),
        (["--native-port", "x"], "--native-port = 'x' must be a whole number from 0 to 65535"),
        (["--http-port", "65536"], "--http-port = '65536' must be a whole number from 0 to 65535"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_obeyed_is_refused(tmp_path: Path, args: Sequence[str], said: str) -> None:
    code, err = refused(tmp_path, *args)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
    assert os.listdir(tmp_path) == []


# ---- a terminal, and the demo


def read_terminal(master: int, until: str, *, deadline_s: float = DEADLINE_S) -> str:
    """What the process wrote to its terminal, up to some text."""
    text, ends = "", time.monotonic() + deadline_s
    while not re.search(until, text):
        ready, _, _ = select.select([master], [], [], max(0.0, ends - time.monotonic()))
        assert ready, f"no {until!r} within {deadline_s} s in {text!r}"
        text += os.read(master, 65536).decode()
    return text


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pseudo-terminal")
def test_on_a_terminal_one_line_lives(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*UP, "--kafka-port", "0", "--native-port", "0", "--http-port", "0", "--demo", "--engine", "memory"],
        cwd=tmp_path,
        env=environment(COLUMNS="120", TERM="xterm"),
        stdin=slave,
        stdout=slave,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(slave)
    try:
        text = read_terminal(master, r"in [1-9]\d* msg/s [▁▂▃▄▅▆▇█]+ .* KB/s \| out [1-9]\S* msg/s \| lag \d")
        assert "demo: 3 topics, 2 groups, 500 msg/s" in text
        assert f"{PROGRAM} tail orders -b 127.0.0.1:" in text
        assert "ready\r\n" not in text.replace("\x1b[0m", "").splitlines(keepends=True)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, err.decode()
        assert b"ERROR" not in err, err.decode()
        assert "The records were in memory, and are gone" in read_terminal(master, "gone")
    finally:
        end(process)
        os.close(master)


def test_ctrl_c_before_it_serves_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_args: object, **_settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tailrace.server.run.run_server", interrupted)
    assert main(["up", "--kafka-port", "0"]) == 0


def test_the_demo_is_written_and_read_by_real_clients(tmp_path: Path) -> None:
    async def committed(bootstrap: str) -> dict[str, int]:
        """Records of the three topics that both groups are known to have read."""
        async with KafkaClient(bootstrap) as client:
            totals: dict[str, int] = {}
            for group in ("billing", "analytics"):
                for target, position in (await client.committed(group)).items():
                    totals[target.topic] = totals.get(target.topic, 0) + position.offset
            return totals

    async def written(bootstrap: str) -> int:
        async with KafkaClient(bootstrap) as client:
            topic = await client.topic("orders")
            times = {TopicPartition("orders", index): LATEST for index in topic.partitions}
            return sum(found.offset for found in (await client.list_offsets(times)).values())

    with up(tmp_path, "--demo") as server:
        assert "demo: 3 topics, 2 groups, 500 msg/s" in server.lines[4]
        wait_until(lambda: set(asyncio.run(committed(server.bootstrap))) == {"orders", "payments", "clicks"})
        assert asyncio.run(written(server.bootstrap)) > 0
        code, err = server.stop()
    assert code == 0, err
    assert " WARNING " not in err
    assert " ERROR " not in err
