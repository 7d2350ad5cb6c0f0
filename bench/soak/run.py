"""Broker up, calibration, soak, broker down.

The clock of the soak is here: once a second the load's process is asked what it has done and the broker is
looked at; every window the probe is asked for its percentiles. The load sends without us, so a slow look
delays a sample and not a request.

Whatever ends the soak, the broker is stopped, its directory is removed, and there is a report.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.child import Child
from bench.report import number
from bench.server import NotHere, TailraceServer
from bench.server.process import HOST
from bench.soak.report import Report, Row
from bench.soak.sampling import ProcessGone, Vitals, disk_bytes, look, memory_parts
from bench.soak.shape import BROKER_ENVIRONMENT, TOPIC, TOPIC_CONFIGS, Job, Rates, Shape
from tailrace.bench.machine import describe_machine
from tailrace.bench.wire import LoadError
from tailrace.bench.wire.topic import LIST_OFFSETS, Admin, admin
from tailrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_PATIENCE_S = 60.0
_END_PATIENCE_S = 120.0  # draining and reading to the end have deadlines of their own
_EARLIEST, _LATEST = -2, -1

Wait = Callable[[float], bool]
"""Wait so many seconds; whether the soak shall end now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long, and how much of what the broker can take."""

    minutes: float = 20.0
    share: float = 0.5
    calibrate_s: float = 6.0
    settle_s: float = 2.0  # of the calibration, not counted
    every_s: float = 1.0
    shape: Shape = field(default_factory=Shape)

    @property
    def window_s(self) -> float:
        """Of the probe: ten seconds, or less if the run is short, so that each quarter has a few."""
        return min(max(self.minutes * 60 / 24, self.every_s), 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is told while it runs."""

    done_s: float
    span_s: float
    text: str


@dataclass(frozen=True, slots=True)
class _Look:
    """What was seen at one time."""

    at: float
    row: Row
    vitals: Vitals


class SoakServer(TailraceServer):
    """Tailrace with its defaults, durable, but looking after retention more often than every five minutes."""

    def __init__(self) -> None:
        super().__init__(fsync="commit")

    def environment(self, directory: Path) -> Mapping[str, str]:
        del directory
        return BROKER_ENVIRONMENT


def run(plan: Plan, *, directory: Path, wait: Wait, note: Callable[[Progress], None]) -> Report:
    """The whole soak. LoadError and the like become failures of the report."""
    began = time.monotonic()
    report = Report(
        began=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        minutes=plan.minutes,
        machine=describe_machine(directory),
        settings={**TOPIC_CONFIGS, **BROKER_ENVIRONMENT, **asdict(plan.shape), "share": plan.share},
    )
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-", dir=directory)))
        server = SoakServer()
        stack.callback(server.stop)
        try:
            note(Progress(done_s=0, span_s=plan.minutes * 60, text="starting the broker"))
            report.ready_s = server.start(place)
            client = stack.enter_context(admin(HOST, server.port))
            client.create(TOPIC, partitions=plan.shape.partitions, configs=TOPIC_CONFIGS)
            _Soak(plan, report, server, client, data=place / "data", wait=wait, note=note).run()
        except (LoadError, OSError, ProcessGone, NotHere) as error:
            report.failures.append(str(error))
    report.took_s = time.monotonic() - began
    report.conclude()
    return report


class _Soak:
    """A soak while it runs."""

    def __init__(
        self,
        plan: Plan,
        report: Report,
        server: SoakServer,
        client: Admin,
        *,
        data: Path,
        wait: Wait,
        note: Callable[[Progress], None],
    ) -> None:
        self._plan, self._report, self._server, self._client = plan, report, server, client
        self._data, self._wait, self._note = data, wait, note
        self._acknowledged = [0] * plan.shape.partitions

    def run(self) -> None:
        target = self._calibrate()
        if target is None:
            self._report.interrupted = True
            return
        job = Job(host=HOST, port=self._server.port, shape=self._plan.shape, rates=target)
        with Child("bench.soak.load", job.as_row()) as load:
            _expect_ready(load)
            with Child("bench.soak.probe", {"host": HOST, "port": self._server.port}) as probe:
                _expect_ready(probe)
                try:
                    self._sample(load, probe)
                finally:
                    self._finish(load)

    def _calibrate(self) -> Rates | None:
        """What the broker takes of everything together, and the share of it that is asked; None to end."""
        plan = self._plan
        self._note(Progress(done_s=0, span_s=plan.minutes * 60, text="finding out what it can take"))
        job = Job(host=HOST, port=self._server.port, shape=plan.shape)
        with Child("bench.soak.load", job.as_row()) as load:
            _expect_ready(load)
            if self._wait(plan.settle_s):
                return None
            before, cpu_before = _ask(load), look(self._server.pid).cpu_s
            if self._wait(plan.calibrate_s):
                return None
            after, cpu_after = _ask(load), look(self._server.pid).cpu_s
            self._count(_end(load))
        most = rates_between(before, after)
        if most is None:
            raise LoadError("the calibration saw no acknowledgements of one kind of producer")
        seconds = _value(after, "at_s") - _value(before, "at_s")
        self._report.capacity = {
            **most,
            "cpu": (cpu_after - cpu_before) / seconds,
            "generator_cpu": (_value(after, "cpu_s") - _value(before, "cpu_s")) / seconds,
        }
        self._report.target = {name: value * plan.share for name, value in most.items()}
        return Rates(singles_per_s=most["singles_per_s"], batches_per_s=most["batches_per_s"]).scaled(
            plan.share
        )

    def _sample(self, load: Child, probe: Child) -> None:
        """Once a second until the time is over, somebody asks for the end, or something has failed."""
        plan, report = self._plan, self._report
        began = time.monotonic()
        window_at = began + plan.window_s
        last = self._look(load)
        while report.span_s < plan.minutes * 60:
            # A look that took longer than a second leaves out what was due meanwhile.
            due = began + (int((time.monotonic() - began) / plan.every_s) + 1) * plan.every_s
            if self._wait(max(due - time.monotonic(), 0)):
                report.interrupted = True
                return
            seen = self._look(load)
            report.span_s = seen.at - began
            report.add_sample({"at_s": report.span_s, **self._figures(last, seen)})
            if seen.at >= window_at:
                self._window(probe, report.span_s)
                window_at += plan.window_s
            if failures := _errors(seen.row):
                report.failures += failures
                return
            self._tell()
            last = seen

    def _look(self, load: Child) -> _Look:
        return _Look(at=time.monotonic(), row=_ask(load), vitals=look(self._server.pid))

    def _figures(self, last: _Look, seen: _Look) -> dict[str, float | None]:
        vitals = seen.vitals
        return {
            "rss_mb": vitals.rss_bytes / 1e6,
            "descriptors": vitals.descriptors,
            "threads": vitals.threads,
            "cpu": (vitals.cpu_s - last.vitals.cpu_s) / (seen.at - last.at),
            "disk_mb": disk_bytes(self._data) / 1e6,
            "log_start": sum(self._offsets(_EARLIEST)),
            "log_end": sum(self._offsets(_LATEST)),
            **load_figures(last.row, seen.row),
        }

    def _window(self, probe: Child, at_s: float) -> None:
        probe.tell("window")
        lag = probe.hear_row(timeout_s=_PATIENCE_S)
        memory = memory_parts(self._server.pid)
        self._report.add_window(
            {
                "at_s": at_s,
                **{f"lag_{part}": number(lag.get(part)) for part in ("p50_ms", "p99_ms", "max_ms")},
                "pss_mb": None if memory is None else memory.pss_bytes / 1e6,
                "anonymous_mb": None if memory is None else memory.anonymous_bytes / 1e6,
            }
        )

    def _finish(self, load: Child) -> None:
        """Let the load drain, and compare what it was promised with what the log holds."""
        try:
            last = _end(load)
        except LoadError as error:
            self._report.failures.append(str(error))
            return
        self._report.failures += [why for why in _errors(last) if why not in self._report.failures]
        self._count(last)
        self._report.visits = {name: last[name] for name in ("groups", "connections", "topics")}
        starts, ends, positions = (
            self._offsets(_EARLIEST),
            self._offsets(_LATEST),
            _numbers(last, "positions"),
        )
        self._report.ledger = [
            {
                "partition": partition,
                "acknowledged": acknowledged,
                "read_to": positions[partition],
                "log_start": starts[partition],
                "log_end": ends[partition],
            }
            for partition, acknowledged in enumerate(self._acknowledged)
        ]

    def _count(self, last: Row) -> None:
        """Add what one run of the load saw acknowledged."""
        if failures := _errors(last):
            self._report.failures += [why for why in failures if why not in self._report.failures]
        more = _numbers(last, "acknowledged")
        self._acknowledged = [count + each for count, each in zip(self._acknowledged, more, strict=True)]

    def _offsets(self, timestamp: int) -> list[int]:
        """Of every partition, by its number."""
        asked = [
            ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            for index in range(self._plan.shape.partitions)
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])
        (topic,) = self._client.ask(LIST_OFFSETS, request, ListOffsetsResponse).topics
        found = {each.partition_index: each.offset for each in topic.partitions if not each.error_code}
        if len(found) != self._plan.shape.partitions:
            raise LoadError("the broker does not tell the offsets of every partition")
        return [found[index] for index in sorted(found)]

    def _tell(self) -> None:
        samples, windows = self._report.samples, self._report.windows
        text = (
            f"{samples['records_per_s'][-1]:,.0f} records/s, {samples['rss_mb'][-1]:.0f} MB,"
            f" {samples['descriptors'][-1]:.0f} descriptors"
        )
        lag = windows["lag_p99_ms"][-1] if windows else None
        if lag is not None:
            text += f", lag p99 {lag:.1f} ms"
        text += f", disk {samples['disk_mb'][-1]:.0f} MB"
        self._note(Progress(done_s=self._report.span_s, span_s=self._plan.minutes * 60, text=text))


# ---- rows of the load's process


def rates_between(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, float] | None:
    """What was acknowledged per second between two rows; None if one kind of producer got nothing."""
    seconds = _value(after, "at_s") - _value(before, "at_s")
    names = {"singles_per_s": "singles", "batches_per_s": "batches", "records_per_s": "records"}
    found = {rate: (_value(after, name) - _value(before, name)) / seconds for rate, name in names.items()}
    found["mb_per_s"] = (_value(after, "bytes") - _value(before, "bytes")) / seconds / 1e6
    return found if all(value > 0 for value in found.values()) else None


def load_figures(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, float | None]:
    """The figures of one sample that come from the load."""
    seconds = max(_value(after, "at_s") - _value(before, "at_s"), 1e-3)

    def per_s(name: str) -> float:
        return (_value(after, name) - _value(before, name)) / seconds

    latencies = (f"{kind}_{part}_ms" for kind in ("singles", "batches") for part in ("p50", "p99"))
    return {
        "records_per_s": per_s("records"),
        "mb_per_s": per_s("bytes") / 1e6,
        "fetches_per_s": per_s("fetches"),
        "fetched_mb_per_s": per_s("fetched_bytes") / 1e6,
        "generator_cpu": per_s("cpu_s"),
        **{name: number(after.get(name)) for name in latencies},
    }


def _expect_ready(child: Child) -> None:
    said = child.hear(timeout_s=_PATIENCE_S)
    if said != "ready":
        raise LoadError(f"a process of the load could not begin: {said}")


def _ask(load: Child) -> Row:
    load.tell("row")
    return load.hear_row(timeout_s=_PATIENCE_S)


def _end(load: Child) -> Row:
    """The last row; one that was asked for before and never taken may come first."""
    load.tell("stop")
    while True:
        row = load.hear_row(timeout_s=_END_PATIENCE_S)
        if row["kind"] == "end":
            return row


def _value(row: Mapping[str, object], name: str) -> float:
    value = number(row.get(name))
    if value is None:
        raise LoadError(f"the load tells no {name}")
    return value


def _numbers(row: Mapping[str, object], name: str) -> Sequence[int]:
    found = row.get(name)
    assert isinstance(found, list), f"the load's last row has no {name}"
    return found


def _errors(row: Mapping[str, object]) -> list[str]:
    found = row.get("errors")
    assert isinstance(found, list), "every row of the load tells its errors"
    return [str(each) for each in found]
