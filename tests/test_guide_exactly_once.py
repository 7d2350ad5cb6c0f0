"""The guide of exactly-once as a newcomer follows it: its programs and commands run, on another port.

The worker is killed, is stopped for longer than its transaction may take, and loses its broker. Each order
has one invoice afterwards.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.document import DEADLINE_S, ROOT, blocks, broken_links, examples
from tests.interop.server import ServerProcess

from tailrace.client import MessageConsumer, TopicPartition

GUIDE_PATH = ROOT / "docs" / "guide" / "exactly-once.md"
GUIDE = GUIDE_PATH.read_text(encoding="utf-8")
COMMANDS = [line for block in blocks(GUIDE) if block.language == "sh" for line in block.text.splitlines()]
INSTALL, UP, *CREATE, PRODUCE, START, KILL, _START_AGAIN, COUNT, END = COMMANDS[:-9]
PARCELS, COUNT_PARCELS, REMIND, COUNT_REMINDERS = COMMANDS[-9:-5]
CREATE_LABELS, START_JOB, KILL_JOB, RUN_JOB, COUNT_LABELS = COMMANDS[-5:]
INVOICES = TopicPartition("invoices", 0)
ALL_COUNTED = "read_committed: 300 records, 300 different"
_PAUSE_S = 0.05


def saved_programs() -> dict[str, str]:
    """The programs that the reader is told to save, by their names."""
    found = re.findall(
        r"[Ss]ave this\s+as `(\w+\.py)`.*?\n\n```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL
    )
    return dict(found)


def wait_until(true: Callable[[], bool], what: Callable[[], object]) -> None:
    """Ask again and again: what another process did cannot wake us."""
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what()}"
        time.sleep(_PAUSE_S)


class Shell:
    """The reader's second terminal: lines are typed one after the other, and their output is kept."""

    def __init__(self, directory: Path, *, port: int, native_port: int) -> None:
        self._directory = directory
        self._port = port
        self._native_port = native_port
        self._screen = directory / "screen"
        self._typed = 0
        with self._screen.open("wb") as output:
            self._process = subprocess.Popen(
                ["sh"],
                cwd=directory,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT / "src"),
                    "TAILRACE_BOOTSTRAP": f"127.0.0.1:{port}",
                },
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,  # so that `close` ends the programs that it started, too
            )

    def save(self, name: str, program: str) -> None:
        """The one change: our broker has other ports."""
        patched = program.replace("localhost:9092", f"127.0.0.1:{self._port}")
        patched = patched.replace('"localhost", 9999', f'"127.0.0.1", {self._native_port}')
        assert patched != program, "nothing in it connects"
        (self._directory / name).write_text(patched, encoding="utf-8")

    @property
    def text(self) -> str:
        return self._screen.read_text(encoding="utf-8")

    def type(self, line: str) -> str:
        """Run a line; returns what was printed until it ended, or until it was in the background."""
        before = len(self.text)
        self._typed += 1
        prompt = f"prompt {self._typed}"
        python = shlex.quote(sys.executable)
        ours = {".venv/bin/tailrace": f"{python} -m tailrace", ".venv/bin/python": python}
        known = re.sub(r"\.venv/bin/\w+", lambda found: ours[found[0]], line)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{known}\necho {prompt} $?\n")
        self._process.stdin.flush()
        wait_until(lambda: prompt in self.text[before:], lambda: f"{line}\n{self.text}")
        assert f"{prompt} 0\n" in self.text, f"{line}\n{self.text[before:]}"
        return self.text[before:].replace(f"{prompt} 0\n", "")

    def worker_pid(self) -> int:
        (found,) = re.findall(r"^pid (\d+)$", self.type("echo pid $worker"), re.MULTILINE)
        return int(found)

    def wait_commits(self, count: int) -> None:
        """Wait until the worker has committed some more transactions."""
        wanted = self.text.count("committed up to") + count
        wait_until(lambda: self.text.count("committed up to") >= wanted, lambda: self.text)

    def wait_last_order(self) -> None:
        wait_until(lambda: "committed up to order 300\n" in self.text, lambda: self.text)

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(DEADLINE_S)
        assert self._process.stdin is not None
        self._process.stdin.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """The guide's broker, on a free port."""
    assert (INSTALL, UP) == ("make install", ".venv/bin/tailrace up")
    with ServerProcess(tmp_path / "data") as running:
        yield running


@pytest.fixture
def shell(tmp_path: Path, server: ServerProcess) -> Iterator[Shell]:
    """A terminal with the guide's programs, and with orders in their topic."""
    with closing(Shell(tmp_path, port=server.port, native_port=server.ports["native"])) as opened:
        for name, program in saved_programs().items():
            opened.save(name, program)
        for line in [*CREATE, PRODUCE]:
            opened.type(line)
        yield opened


def has_open_transaction(server: ServerProcess) -> bool:
    """Whether there are invoices of which it is not decided if they count."""
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        properties = {"bootstrap.servers": server.bootstrap, "isolation.level": isolation}
        with MessageConsumer(properties) as consumer:
            consumer.assign([INVOICES])
            consumer.seek_to_end()
            ends.append(consumer.position(INVOICES))
    return ends[0] < ends[1]


def counted(shell: Shell) -> tuple[str, int]:
    """What a careful reader counts, and how many records there are with the aborted ones."""
    careful, careless = shell.type(COUNT).splitlines()
    (found,) = re.findall(r"^read_uncommitted: (\d+) records, \d+ different$", careless)
    return careful, int(found)


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_nothing_and_doubles_nothing(
    server: ServerProcess, shell: Shell
) -> None:
    shell.type(START)
    shell.wait_commits(2)
    shell.type(KILL)
    while not has_open_transaction(server):  # the kill came between two transactions: once more
        shell.type(START)
        shell.wait_commits(1)
        shell.type(KILL)
    shell.type(START)
    shell.wait_last_order()
    careful, written = counted(shell)
    assert careful == ALL_COUNTED
    assert written > 300, "the invoices of the aborted transaction are there, and are not counted"
    shell.type(END)

    shell.type(PARCELS)
    (shown,) = [each.shown for each in examples(GUIDE) if COUNT_PARCELS in each.text]
    assert shown is not None
    assert shell.type(COUNT_PARCELS) == shown.text

    assert "committed up to order 300\n" in shell.type(REMIND)
    (shown,) = [each.shown for each in examples(GUIDE) if COUNT_REMINDERS in each.text]
    assert shown is not None
    assert shell.type(COUNT_REMINDERS) == shown.text


@pytest.mark.slow
def test_a_worker_whose_transaction_timed_out_processes_its_records_again(
    server: ServerProcess, shell: Shell
) -> None:
    program = saved_programs()["worker.py"]
    assert '"transaction.timeout.ms": 10_000' in program
    shell.save("worker.py", program.replace("10_000", "2_000"))
    shell.type(START)
    pid = shell.worker_pid()
    shell.wait_commits(1)
    os.kill(pid, signal.SIGSTOP)
    while not has_open_transaction(server):
        os.kill(pid, signal.SIGCONT)
        shell.wait_commits(1)
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: not has_open_transaction(server), lambda: "the transaction does not time out")
    os.kill(pid, signal.SIGCONT)
    shell.wait_last_order()
    assert "the transaction cannot commit" in shell.text
    assert shell.worker_pid() == pid and "Traceback" not in shell.text
    assert counted(shell)[0] == ALL_COUNTED


@pytest.mark.slow
def test_a_worker_goes_on_when_its_broker_was_killed(server: ServerProcess, shell: Shell) -> None:
    shell.type(START)
    for _ in range(3):
        shell.wait_commits(2)
        server.kill()
        server.start()
    shell.wait_last_order()
    assert "Traceback" not in shell.text
    assert counted(shell)[0] == ALL_COUNTED


@pytest.mark.slow
def test_a_job_of_spark_that_is_killed_writes_every_row_once(shell: Shell, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not here. On Debian: apt-get install openjdk-17-jre-headless")
    commits = tmp_path / "labels-checkpoint" / "commits"
    shell.type(CREATE_LABELS)
    shell.type(START_JOB)
    wait_until(lambda: (commits / "0").exists(), lambda: shell.text)
    shell.type(KILL_JOB)
    shell.type(RUN_JOB)
    assert shell.type(COUNT_LABELS).splitlines()[0] == ALL_COUNTED


def test_every_program_and_command_of_the_guide_is_known_to_this_test() -> None:
    assert COMMANDS == [
        "make install",
        ".venv/bin/tailrace up",
        ".venv/bin/tailrace topic create orders --partitions 1",
        ".venv/bin/tailrace topic create invoices --partitions 1",
        ".venv/bin/tailrace topic create parcels --partitions 1",
        ".venv/bin/tailrace topic create reminders --partitions 1",
        "seq 1 300 | .venv/bin/tailrace produce orders",
        ".venv/bin/python worker.py & worker=$!",
        "kill -9 $worker",
        ".venv/bin/python worker.py & worker=$!",
        ".venv/bin/python count.py invoices",
        "kill $worker",
        ".venv/bin/python parcels.py",
        ".venv/bin/python count.py parcels",
        ".venv/bin/python reminders.py",
        ".venv/bin/python count.py reminders",
        ".venv/bin/tailrace topic create labels --partitions 1",
        ".venv/bin/python labels.py & job=$!",
        "kill -9 $job",
        ".venv/bin/python labels.py",
        ".venv/bin/python count.py labels",
    ]
    assert list(saved_programs()) == ["worker.py", "count.py", "parcels.py", "reminders.py", "labels.py"]
    assert len([block for block in blocks(GUIDE) if block.language == "python"]) == 5


def test_links_lead_somewhere() -> None:
    assert broken_links(GUIDE_PATH) == []
