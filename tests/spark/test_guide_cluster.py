"""The guide of clusters as a newcomer follows it: a standalone Spark with two workers that lack Tailrace.

The commands are those of the guide, in processes of their own. What differs: the port of the head, and that
the workers' environment is made of links to what is installed here instead of by pip.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

import tailrace
from tailrace.server.configuration import check_file
from tailrace.spark.pipelines.ship import NOT_SHIPPED
from tailrace.testing.port import free_port

GUIDE_PATH = Path(__file__).parents[2] / "docs" / "guide" / "spark-cluster.md"
GUIDE = GUIDE_PATH.read_text(encoding="utf-8")
RUN_S = 900
ORDERS = 60
COUNTS = "SELECT key, count(*) AS n FROM STREAM orders GROUP BY key"


def part(heading: str) -> str:
    (found,) = [text for text in re.split(r"^## ", GUIDE, flags=re.MULTILINE) if text.startswith(heading)]
    return found


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", part("Standalone"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


# ---- the machine of the reader


def packages_of(environment: Path) -> Path:
    (found,) = (environment / "lib").glob("python*/site-packages")
    return found


def make_worker(place: Path, install: str) -> None:
    """What `pip install` would make of an empty environment, as links to what is installed here."""
    venv.create(place, symlinks=True)
    wanted = [re.split(r"[<>=]", word)[0] for word in shlex.split(install)[2:]]
    assert set(wanted) == {"pyspark", *NOT_SHIPPED}, "what the guide says that workers need"
    brought = ("py4j", "dateutil", "pytz", "six", "tzdata", "numpy.libs", "pandas.libs")
    here = Path(_origin("pyspark")).parents[1]
    for name in [*wanted, *brought]:
        for found in (here / name, here / f"{name}.py"):
            if found.exists():
                (packages_of(place) / found.name).symlink_to(found)
    for name in ("bin/spark-class", "bin/find-spark-home", "bin/load-spark-env.sh", "find_spark_home.py"):
        shutil.copy(here / "pyspark" / name, place / "bin")


def _origin(name: str) -> str:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return spec.origin


def make_driver(place: Path) -> None:
    """An environment with this Tailrace and what is installed here; a PYTHONPATH would reach the workers."""
    venv.create(place, symlinks=True)
    paths = [str(Path(tailrace.__file__).parents[1]), str(Path(_origin("pyspark")).parents[1])]
    (packages_of(place) / "here.pth").write_text("\n".join(paths) + "\n")
    script = place / "bin" / "tailrace"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(place / "bin" / "python"))} -m tailrace "$@"\n')
    script.chmod(0o755)


class Reader:
    """Types what the guide says, in one directory."""

    def __init__(self, place: Path, bootstrap: str) -> None:
        self.place = place
        self.port = str(free_port())
        left_out = ("PYTHONPATH", "PYSPARK_", "SPARK_", "TAILRACE_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
        cores_and_heap = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
        self.environment = {**kept, **cores_and_heap, "TAILRACE_BOOTSTRAP": bootstrap}

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/bash", "-c", line.replace("7077", self.port)],
            cwd=self.place,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )

    @contextmanager
    def terminal(self, line: str, *, shows: str) -> Iterator[None]:
        """A command in a terminal of its own, once it has shown something; it ends with the block."""
        log = self.place / f"terminal-{time.monotonic_ns()}"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["/bin/bash", "-c", line.replace("7077", self.port) + " --webui-port 0"],
                cwd=self.place,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_shown(process, log, shows)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _wait_shown(self, process: subprocess.Popen[bytes], log: Path, shows: str) -> None:
        deadline = time.monotonic() + RUN_S
        while shows not in log.read_text(errors="replace"):
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.2)  # a log gives no sign


@pytest.fixture
def reader(broker: tailrace.Broker, tmp_path: Path) -> Reader:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not here. On Debian: apt-get install openjdk-17-jre-headless")
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")
    broker.create_topic("orders", 3)
    for number in range(ORDERS):
        broker.produce("orders", b'{"n": %d}' % number, key=b"k%d" % number)
    make_driver(tmp_path / ".venv")
    return Reader(tmp_path, broker.bootstrap_servers)


@pytest.mark.heavy
def test_the_standalone_part_works_with_two_workers(reader: Reader, broker: tailrace.Broker) -> None:
    made, install, head, first, second, lacking, archive, sql = commands()
    assert made == "python3 -m venv worker"
    make_worker(reader.place / "worker", install)
    with ExitStack() as terminals:
        terminals.enter_context(reader.terminal(head, shows="I have been elected leader"))
        for line in (first, second):
            terminals.enter_context(reader.terminal(line, shows="Successfully registered with master"))

        refused = reader.type(lacking)
        assert refused.returncode == 2, refused.stderr
        (error,) = [line for line in refused.stderr.splitlines() if line.startswith("error: ")]
        assert f"No module named 'tailrace' in {reader.place}/worker/bin/python3 (Python " in error
        assert "Run with --ship to send Tailrace to the workers" in error
        assert refused.stderr.count("No module named") == 1, "it was not tried again"
        assert not (reader.place / "lake" / "topic=orders").exists()

        archived = reader.type(archive)
        assert archived.returncode == 0, archived.stderr
        assert re.search(rf"rows +{ORDERS}\b", archived.stdout), archived.stdout

        copied = reader.type(sql)
        assert copied.returncode == 0, copied.stderr
        assert values(broker, "orders-copy") == values(broker, "orders")

        counted = reader.type(
            sql.replace("SELECT key, value FROM STREAM orders", COUNTS)
            .replace("orders-copy", "orders-counts")
            .replace("./checkpoint", "./counts")
        )
        assert counted.returncode == 0, counted.stderr
        state = [each.name for each in (reader.place / "counts" / "state" / "0").iterdir()]
        assert sorted(name for name in state if name.isdecimal()) == ["0", "1"], "a partition for each core"
    ran = [list((reader.place / f"work-{number}").glob("app-*/*/tailrace")) for number in (1, 2)]
    assert all(ran), "both workers had executors, with what was shipped"


def values(broker: tailrace.Broker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((record.key, record.value) for record in broker.read(topic))


# ---- without a cluster


def test_the_settings_of_the_guide_are_valid(tmp_path: Path) -> None:
    (table,) = re.findall(r"^```toml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    file = tmp_path / "tailrace.toml"
    file.write_text(table, encoding="utf-8")
    assert check_file(file) == []


def test_every_flag_of_the_guide_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    from tailrace.cli.pipeline_run import command

    archive = command.commands["archive"]
    known = {name for parameter in archive.params for name in parameter.opts}
    told = set(re.findall(r"`(--[a-z-]+)", part("What Spark is told")))
    assert told != set()
    assert told <= known
