"""Documents that show commands, programs and what comes of them: taken apart, run, and compared.

An example is a block of `sh` or `python`; what it prints is the block of `json` or `text` behind it, if there
is one. Of JSON every name must be there and no other, and values are the same unless they are different every
time (`VOLATILE`). A list may be cut short. A document leaves out older names that stand beside the new ones.
Of text, times are left out.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

from tailrace.http.openapi import write_openapi
from tailrace.http.table import OPERATIONS

ROOT = Path(__file__).parents[1]
DEADLINE_S = 120
_PAUSE_S = 0.1
_FREE_PORTS = [word for listener in ("kafka", "native", "http") for word in (f"--{listener}-port", "0")]
_EVENT_LINES = 5  # with which a tail shows its first record

VOLATILE = frozenset(
    {
        "ack_id",
        "at",
        "at_ms",
        "time_ms",
        "bytes_in_per_s",
        "bytes_in_total",
        "bytes_out_per_s",
        "bytes_out_total",
        "bytes",
    }
    | {
        "bytes_written",
        "cluster_id",
        "connections",
        "cpu_share",
        "created_ms",
        "cut",
        "path",
        "disk_bytes",
        "disk_free_bytes",
    }
    | {
        "end_ms",
        "expires_ms",
        "errors_per_s",
        "flush_p99_ms",
        "found",
        "history",
        "host",
        "id",
        "kafka",
        "lag",
        "loop_lag_ms",
        "token",
    }
    | {"memory_bytes", "native", "produce_p50_ms", "produce_p99_ms", "records_in_per_s", "records_in_total"}
    | {
        "records_out_per_s",
        "records_out_total",
        "requests_per_s",
        "retry_buffer_bytes",
        "sparkline",
        "summary",
    }
    | {"started_at", "time", "timestamp", "topic_id", "uptime_s", "version", "pid"}
)
_CHANGING = re.compile(r"\d{13}|\b[0-9a-f]{12}(?=/)")
"""A time, and what tells a topic from others of its name."""


class Block(NamedTuple):
    """What stands between two fences."""

    language: str
    text: str


class Example(NamedTuple):
    """Something to run, and what it shows; None where the document does not say."""

    language: str
    text: str
    shown: Block | None


def blocks(document: str) -> list[Block]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    return [Block._make(each) for each in found]


def broken_links(path: Path) -> list[str]:
    """Links of a document to files that are not there, and to headings that it does not have."""
    text = path.read_text(encoding="utf-8")
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    wrong = []
    for link in re.findall(r"\]\(([^)]+)\)", outside):
        file, _, heading = link.partition("#")
        target = path.parent / file if file else path
        if "://" in link:
            continue
        if not target.exists() or (heading and heading not in _headings(target)):
            wrong.append(link)
    return wrong


def _headings(path: Path) -> set[str]:
    """The anchors that a reader makes of a document's headings."""
    found = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in found}


def examples(document: str) -> list[Example]:
    """Everything of a document that can be run, in its order."""
    all_blocks = blocks(document)
    return [
        Example(block.language, block.text, behind if behind.language in ("json", "text") else None)
        for block, behind in zip(all_blocks, [*all_blocks[1:], Block("", "")], strict=True)
        if block.language in ("sh", "python")
    ]


@contextmanager
def running_node(directory: Path, *options: str) -> Iterator[Mapping[str, int]]:
    """`tailrace up` in a directory, on free ports; its ports by name."""
    with node_screen(directory, *options):
        yield node_ports(directory)


@contextmanager
def node_screen(directory: Path, *options: str) -> Iterator[str]:
    """`tailrace up` in a directory, on free ports; what it shows until it is ready."""
    with TemporaryFile("w+") as errors:  # and no pipe, which nobody would empty
        process = subprocess.Popen(
            [*(sys.executable, "-m", "tailrace", "up"), *_FREE_PORTS, *options],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield _read_until_ready(process, errors)
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0


def _read_until_ready(process: subprocess.Popen[str], errors: IO[str]) -> str:
    assert process.stdout is not None
    screen = []
    for line in process.stdout:
        screen.append(line)
        if line == "ready\n":
            return "".join(screen)
    errors.seek(0)
    raise AssertionError(f"the node did not start:\n{''.join(screen)}{errors.read()}")


def node_ports(directory: Path) -> dict[str, int]:
    """The ports of the node that runs in a directory, by name."""
    found: dict[str, int] = json.loads((directory / "tailrace-data" / "tailrace.ports.json").read_text())
    return found


class Caller:
    """Somebody who types what a document says, at a node with other ports, in the .venv of the tests."""

    def __init__(self, directory: Path, ports: Mapping[str, int]) -> None:
        self._directory = directory
        self._ports = {"8080": str(ports["http"]), "9092": str(ports["kafka"]), "9999": str(ports["native"])}
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "NO_PROXY": "*",
            "TAILRACE_BOOTSTRAP": f"127.0.0.1:{ports['kafka']}",
            "TAILRACE_NODE": f"127.0.0.1:{ports['native']}",
        }
        self._tag = ""  # with which the newest ack_ids begin; a document can only show its own

    def play(self, example: Example) -> None:
        """Run an example, and compare; what only looks may need a moment until it sees it."""
        end = time.monotonic() + DEADLINE_S
        while (wrong := self._wrong(example)) is not None:
            assert _only_looks(example) and time.monotonic() < end, f"{example.text}\n{wrong}"
            time.sleep(_PAUSE_S)

    def _wrong(self, example: Example) -> str | None:
        printed = self.run(example)
        if example.shown is not None:
            wrong = difference(example.shown, printed)
            return None if wrong is None else f"{wrong}\n{printed}"
        return printed if '{"error":' in printed else None

    def run(self, example: Example) -> str:
        """What an example prints, with the ports that the document has."""
        text = self._with_our_ports(example.text)
        if text.startswith("curl -N "):
            printed = self._first_lines(text, count=len(_text_of(example.shown).splitlines()) or _EVENT_LINES)
        elif example.language == "sh":
            known = re.sub(r"\bcurl(?= )", "curl -sS", text)
            known = known.replace(".venv/bin/tailrace ", f"{shlex.quote(sys.executable)} -m tailrace ")
            printed = self._finish(["sh", "-ec", known])
        else:
            printed = self._finish([sys.executable, "-W", "error", "-c", text])
        found = re.search(r'"ack_id": ?"([0-9a-f]{4})m', printed)
        self._tag = found[1] if found else self._tag
        for usual, ours in self._ports.items():
            printed = re.sub(rf"(?<=:){ours}\b", usual, printed)
        return printed

    def _with_our_ports(self, text: str) -> str:
        """The two changes: ports, and the part of an ack_id that no document can know."""
        for usual, ours in self._ports.items():
            text = re.sub(rf"(?<=:){usual}\b", ours, text)
        return re.sub(r'(?<=")[0-9a-f]{4}(?=m\d+\.\d+\.\d+")', lambda old: self._tag or old[0], text)

    def _finish(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _first_lines(self, command: str, *, count: int) -> str:
        """What a command that does not end prints first."""
        words = [*shlex.split(command, comments=True), "-sS", "--max-time", str(DEADLINE_S)]
        process = subprocess.Popen(words, env=self._environment, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            return "".join(process.stdout.readline() for _ in range(count))
        finally:
            process.kill()
            process.communicate()


def _only_looks(example: Example) -> bool:
    return example.language == "sh" and not re.search(r"-X|--json|--data", example.text)


def _text_of(block: Block | None) -> str:
    return "" if block is None else block.text


def difference(shown: Block, printed: str) -> str | None:
    """Where what was printed is not what the document shows; None: nowhere."""
    if shown.language == "text":
        if _CHANGING.sub("", shown.text).strip() == _CHANGING.sub("", printed).strip():
            return None
        return "other text"
    wanted, real = json_values(shown.text), json_values(printed)
    if len(wanted) != len(real):
        return f"{len(real)} values instead of {len(wanted)}"
    wrong = (_different(one, other, place="") for one, other in zip(wanted, real, strict=True))
    return next((each for each in wrong if each is not None), None)


def json_values(text: str) -> list[Any]:
    """The JSON values of a text, one after the other."""
    decoder, found, at = json.JSONDecoder(), [], 0
    text = text.strip()
    while at < len(text):
        value, end = decoder.raw_decode(text, at)
        found.append(value)
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return found


def _different(shown: Any, real: Any, *, place: str) -> str | None:
    if isinstance(shown, dict) and isinstance(real, dict):
        older = {old for old, new in older_fields() if new in real and old not in shown}
        if shown.keys() != real.keys() - older:
            return f"{place or 'top'}: names {sorted(shown.keys() ^ real.keys())}"
        wrong = (_different(shown[key], real[key], place=f"{place}.{key}") for key in shown)
        return next((each for each in wrong if each is not None), None)
    if isinstance(shown, list) and isinstance(real, list):
        if _is_volatile(place):
            return None
        if len(shown) > len(real) or (real and not shown):
            return f"{place}: {len(real)} of {len(shown)} shown"
        wrong = (
            _different(one, other, place=f"{place}[{index}]")
            for index, (one, other) in enumerate(zip(shown, real, strict=False))
        )
        return next((each for each in wrong if each is not None), None)
    if _is_volatile(place):
        kinds = {type(each) for each in (shown, real)} - {type(None)}
        return None if len(kinds) < 2 or kinds == {int, float} else f"{place}: {shown!r}, really {real!r}"
    if isinstance(shown, str) and isinstance(real, str):
        shown, real = _CHANGING.sub("", shown), _CHANGING.sub("", real)
    return None if shown == real else f"{place}: {shown!r}, really {real!r}"


@cache
def older_fields() -> frozenset[tuple[str, str]]:
    """The older name and the name of every field that /openapi.json marks as deprecated."""
    schemas = write_openapi(OPERATIONS, version="0")["components"]["schemas"].values()
    return frozenset(
        (name, each["description"].removeprefix("older name of "))
        for schema in schemas
        for name, each in schema.get("properties", {}).items()
        if each.get("deprecated")
    )


def _is_volatile(place: str) -> bool:
    """Whether a value, or something that it is part of, is another one every time."""
    return any(part in VOLATILE for part in re.findall(r"\w+", place))
