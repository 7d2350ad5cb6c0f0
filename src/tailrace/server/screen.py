"""What `tailrace up` shows: the listeners, how to go on, and on a terminal one line that lives.

    tailrace 0.1.0   single node   data ./tailrace-data   fsync commit   accel yes
      Kafka    127.0.0.1:9092           bootstrap.servers=127.0.0.1:9092
      native   127.0.0.1:9999           unix:/run/tailrace.sock
      console  http://127.0.0.1:8080    REST /api/v1   metrics /metrics
      ready in 0.4 s    demo: 3 topics, 2 groups, 500 msg/s
      Spark    off: make up SPARK=1, or tailrace up --demo --pipelines, adds a lake
      Next:  tailrace tail orders     tailrace bench     tailrace --help
      in 512 msg/s ▁▂▅▇▇▆▇  61 KB/s | out 1.0k msg/s | lag 14 | p99 2.1 ms

Without a terminal, or on one that is dumb, there is no colour and no live line, and a line that is exactly
`ready` ends the screen. A terminal that goes away takes nothing but its lines with it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

from tailrace import __version__
from tailrace.broker.health import short_number, short_rate
from tailrace.model import escape
from tailrace.server.engines import Description
from tailrace.server.stats import Stats, sparkline

_USUAL_ADDRESS = "127.0.0.1:9092"
_BOLD, _DIM, _GREEN, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[0m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the screen tells of a node that serves."""

    storage: Description
    fsync: str
    accelerated: bool
    kafka: str  # HOST:PORT
    native: str  # HOST:PORT
    native_socket: str | None = None  # unix:/path
    http: str | None = None  # HOST:PORT
    kafka_protocol: str = "PLAINTEXT"  # Kafka's name of it
    http_scheme: str = "http"
    ready_s: float
    demo: str = ""  # what the demo does, in words
    pipelines: str = ""  # those that run beside it, in words
    clock_held: str = ""  # the time by which records expire, where the machine's is not believed
    first_topic: str = "TOPIC"  # for the line that says how to go on
    program: str = "tailrace"  # how commands are called from here


def screen_lines(facts: Facts) -> Iterator[str]:
    """The screen without its live line, and without colour."""
    where = _where(facts)
    accel = "yes" if facts.accelerated else "no"
    yield f"tailrace {__version__}   single node   {where}   accel {accel}"
    security = "" if facts.kafka_protocol == "PLAINTEXT" else f"   security.protocol={facts.kafka_protocol}"
    yield f"  Kafka    {facts.kafka:<24} bootstrap.servers={facts.kafka}{security}"
    yield f"  native   {facts.native:<24} {facts.native_socket or ''}".rstrip()
    if facts.http:
        yield f"  console  {f'{facts.http_scheme}://{facts.http}':<24} REST /api/v1   metrics /metrics"
    demo = f"    demo: {facts.demo}" if facts.demo else ""
    pipelines = f"    pipelines: {facts.pipelines}" if facts.pipelines else ""
    yield f"  ready in {facts.ready_s:.1f} s{demo}{pipelines}"
    if facts.clock_held:
        yield f"  clock    not believed: nothing expires past {facts.clock_held}"
        yield f"           if it is right: stop, then {facts.program} storage confirm-clock DIR"
    if facts.demo and not facts.pipelines:
        yield f"  Spark    off: make up SPARK=1, or {facts.program} up --demo --pipelines, adds a lake"
    # Commands look for a broker on the usual port.
    place = "" if facts.kafka == _USUAL_ADDRESS else f" -b {facts.kafka}"
    place += " --tls-ca FILE" if facts.kafka_protocol.endswith("SSL") else ""
    place += " --user NAME" if facts.kafka_protocol.startswith("SASL") else ""
    tail, bench = f"tail {facts.first_topic}{place}", f"bench{place}"
    yield "  Next:  " + "     ".join(f"{facts.program} {each}" for each in (tail, bench, "--help"))


def stopped_text(facts: Facts) -> str:
    """The last line of a node that ended as it was told to: what became of the data."""
    if not facts.storage.durable:
        return "stopped. The records were in memory, and are gone"
    return f"stopped. Everything is kept in {facts.storage.place}, and the next start goes on with it"


def _where(facts: Facts) -> str:
    storage = facts.storage
    if storage.directory:
        return f"data {storage.place}   fsync {facts.fsync}"
    if storage.durable:
        return f"engine {storage.name}   data {storage.place}   fsync {facts.fsync}"
    return f"engine {storage.name}"


def live_text(stats: Stats, history: Sequence[float], *, beside: str = "") -> str:
    """The live line; `beside` is what runs beside the node, in words."""
    p99 = "-" if stats.produce_p99_ms is None else f"{stats.produce_p99_ms:.1f} ms"
    parts = [
        f"in {short_number(stats.records_in)} msg/s {sparkline(history)}  {short_rate(stats.bytes_in)}",
        f"out {short_number(stats.records_out)} msg/s",
        f"lag {short_number(stats.lag)}",
        f"p99 {p99}",
    ]
    return "  " + " | ".join([*parts, *([beside] if beside else [])])


class Screen:
    """Writes to stdout, plainly or for a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colours = self.live and not os.environ.get("NO_COLOR")
        self._line_shown = False

    def show_ready(self, facts: Facts) -> None:
        """Everything there is to say when the node serves."""
        lines = [escape(line) for line in screen_lines(facts)]
        if self._colours:
            lines = [_coloured(number, line) for number, line in enumerate(lines)]
        if not self.live:
            lines.append("ready")
        self._stream.write("\n".join(lines) + "\n")
        self._stream.flush()

    def show_standby(self, place: str) -> None:
        """Another process serves; this one waits."""
        self._write(f"standby: another broker serves {escape(place)}. This one takes over when that ends\n")

    def show_stopped(self, facts: Facts) -> None:
        """What a person reads last; without a terminal the log says it."""
        if self.live:
            self._write(f"\r\x1b[K{escape(stopped_text(facts))}\n")

    def show_live(self, text: str) -> None:
        """Replace the live line, cut to the terminal's width so that it stays one line."""
        width = shutil.get_terminal_size().columns
        encoding = self._stream.encoding or "utf-8"
        shown = text[: width - 1].encode(encoding, "replace").decode(encoding)
        self._line_shown = True
        self._write(f"\r{shown}\x1b[K")

    def clear_live(self) -> None:
        """Make room for something else; the next `show_live` draws the line below it."""
        if self._line_shown:
            self._line_shown = False
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone, and the node has other things to do
            self._stream.write(text)
            self._stream.flush()


def _coloured(number: int, line: str) -> str:
    if number == 0:
        return f"{_BOLD}{line}{_PLAIN}"
    if line.startswith("  ready"):
        return f"{_GREEN}{line}{_PLAIN}"
    return f"{_DIM}{line}{_PLAIN}" if line.startswith(("  Spark", "  Next")) else line
