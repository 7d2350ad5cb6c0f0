"""The guide of subscriptions as a newcomer follows it: its programs and commands run, on other ports."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.document import DEADLINE_S, ROOT, running_node

GUIDE_PATH = ROOT / "docs" / "guide" / "subscriptions.md"
GUIDE = GUIDE_PATH.read_text(encoding="utf-8")
_PAUSE_S = 0.05


class Block(NamedTuple):
    """What stands between two fences."""

    language: str
    text: str


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return [block.text for block in map(Block._make, found) if block.language == language]


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines()]


def saved_programs() -> dict[str, str]:
    """The programs that the reader is told to save, by their names."""
    found = re.findall(
        r"[Ss]ave this as `(\w+\.py)`:\n\n```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL
    )
    return dict(found)


def wait_until(true: Callable[[], bool], what: Callable[[], object]) -> None:
    """Ask until it is so; what another process did cannot wake us."""
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what()}"
        time.sleep(_PAUSE_S)


class Reader:
    """Somebody with a running broker who types what the guide says."""

    def __init__(self, directory: Path, *, kafka_port: int, native_port: int) -> None:
        self._directory = directory
        self._port = native_port
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONUNBUFFERED": "1",
            "TAILRACE_BOOTSTRAP": f"127.0.0.1:{kafka_port}",
            "TAILRACE_NODE": f"127.0.0.1:{native_port}",
        }

    def save(self, name: str, program: str) -> None:
        """The one change: our broker has another port."""
        patched = re.sub(r"BrokerClient\((?=\))", f"BrokerClient(port={self._port}", program)
        patched = re.sub(r"BrokerClient\((?=\w+=)(?!port)", f"BrokerClient(port={self._port}, ", patched)
        assert patched != program, "nothing in it connects"
        (self._directory / name).write_text(patched, encoding="utf-8")

    def start(self, line: str) -> subprocess.Popen[str]:
        """Type a command; its .venv is the one that the tests run in."""
        words = shlex.split(line)
        known = {
            ".venv/bin/python": [sys.executable],
            ".venv/bin/tailrace": [sys.executable, "-m", "tailrace"],
        }
        return subprocess.Popen(
            [*known[words[0]], *words[1:]],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, line: str) -> str:
        """Type a command, and what it prints until it ends well."""
        process = self.start(line)
        printed, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, f"{line}\n{printed}"
        return printed


class Terminal:
    """A program that goes on until Enter is pressed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self._process = process
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def text(self) -> str:
        """Its threads print at once, so that what one says may stand in the line of another."""
        return "\n".join(list(self.lines))

    def handled(self) -> list[str]:
        return re.findall(r"order \d+ \(delivery \d+\)", self.text)

    def press_enter(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.close()
        code = self._process.wait(DEADLINE_S)
        self._reading.join(DEADLINE_S)
        assert code == 0, "\n".join(self.lines)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reading.join(DEADLINE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """The guide's broker on free ports."""
    assert ".venv/bin/tailrace up" in commands()
    with running_node(tmp_path) as ports:
        yield Reader(tmp_path, kafka_port=ports["kafka"], native_port=ports["native"])


@pytest.fixture
def open_worker(reader: Reader) -> Iterator[Callable[[], Terminal]]:
    """Opens terminals in which the guide's worker runs."""
    opened: list[Terminal] = []

    def start() -> Terminal:
        terminal = Terminal(reader.start(".venv/bin/python worker.py"))
        opened.append(terminal)
        wait_until(lambda: "working; Enter ends it" in terminal.text, lambda: terminal.lines)
        return terminal

    yield start
    for terminal in opened:
        terminal.end()


def numbers(terminal: Terminal) -> list[int]:
    return [int(line.split()[1]) for line in terminal.handled()]


def dead_letters(reader: Reader) -> list[dict[str, object]]:
    printed = reader.run(".venv/bin/tailrace subscription dead-letters billing -o jsonl")
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.slow
def test_the_guide_leads_to_a_worker_pool_with_retries_and_dead_letters(
    reader: Reader, open_worker: Callable[[], Terminal]
) -> None:
    programs = saved_programs()
    assert list(programs) == ["shop.py", "worker.py"]
    for name, program in programs.items():
        reader.save(name, program)
    reader.run(".venv/bin/python shop.py")
    reader.run('.venv/bin/tailrace publish orders "order 20"')

    first = open_worker()
    welcome = [number for number in range(21) if number not in (7, 17)]
    wait_until(lambda: sorted(numbers(first)) == welcome, lambda: first.lines)
    assert all(line.endswith("(delivery 1)") for line in first.handled())
    wait_until(lambda: len(dead_letters(reader)) == 2, lambda: first.lines)

    second = open_worker()
    reader.run(".venv/bin/python shop.py")
    wait_until(lambda: len(numbers(first) + numbers(second)) == 19 + 18, lambda: first.lines + second.lines)
    assert numbers(second), "the second worker had its share"

    wait_until(lambda: len(dead_letters(reader)) == 4, lambda: dead_letters(reader))
    for letter in dead_letters(reader):
        assert letter["reason"] == "ValueError: sevens are not welcome"
        assert letter["deliveries"] == 3
        assert letter["value"] in ("order 7", "order 17")
    described, shown = (reader.run(line) for line in section("4.")[:2])
    assert "billing" in described and "orders" in described
    assert shown.count("sevens are not welcome") == 4

    (redrive,) = section("4.")[2:]
    assert "4 dead letters" in reader.run(redrive)
    wait_until(lambda: len(dead_letters(reader)) == 4, lambda: dead_letters(reader))  # the bug is still there

    before = len(numbers(first) + numbers(second))
    (replay,) = section("5.")
    reader.run(replay)
    wait_until(
        lambda: len(numbers(first) + numbers(second)) == before + 37, lambda: first.lines + second.lines
    )
    first.press_enter()
    second.press_enter()

    reader.run('.venv/bin/tailrace publish orders "order 1000"')
    (pull,) = (block for block in blocks("python") if "client.pull" in block)
    reader.save("pull.py", pull)
    wait_until(lambda: reader.run(".venv/bin/python pull.py") == "" and lag(reader) == 0, lambda: lag(reader))


def lag(reader: Reader) -> int:
    found = json.loads(reader.run(".venv/bin/tailrace subscription describe billing -o json"))
    return int(found["lag"])


def section(number: str) -> list[str]:
    """The commands of one section."""
    body = re.split(r"^## ", GUIDE, flags=re.MULTILINE)
    (found,) = [part for part in body if part.startswith(number)]
    lines = re.findall(r"^```sh\n(.*?)^```$", found, re.MULTILINE | re.DOTALL)
    return [line for block in lines for line in block.splitlines()]


def test_every_program_and_command_of_the_guide_is_known_to_this_test() -> None:
    assert commands() == [
        "make install",
        ".venv/bin/tailrace up",
        ".venv/bin/python shop.py",
        '.venv/bin/tailrace publish orders "order 20"',
        ".venv/bin/python worker.py",
        ".venv/bin/tailrace subscription describe billing",
        ".venv/bin/tailrace subscription dead-letters billing",
        ".venv/bin/tailrace subscription redrive billing --yes",
        ".venv/bin/tailrace subscription replay billing --from earliest --yes",
    ]
    assert len(blocks("python")) == 3
    assert len(blocks("")) == 0


def test_the_settings_of_the_guide_have_the_defaults_that_it_says() -> None:
    from tailrace.broker.subscriptions import SubscriptionConfig

    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|.*\| ([^|]+) \|$", GUIDE, re.MULTILINE)
    told = {
        name: value.strip().strip("`")
        for names, values in rows
        for name, value in zip(re.findall(r"\w+", names), values.split(","), strict=True)
    }
    told["dead_letter_topic"] = told["dead_letter_topic"].replace("<name>", "billing")
    told["priority"] = told["priority"].lower()
    assert SubscriptionConfig.read("billing", "orders", told) == SubscriptionConfig.read(
        "billing", "orders", {}
    )
    assert set(told) >= {"mode", "delivery", "order", "unacked_max", "backoff_ms_max"}


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", GUIDE)
    local = [link for link in links if "://" not in link]
    assert local != []
    assert [link for link in local if not (GUIDE_PATH.parent / link).exists()] == []
