"""What a run of `tailrace bench` found: figures of every load, the broker, the settings, and where we stood.

The fields of the report are the keys of its JSON: scripts read them, so they stay, and what could not be
measured is null. FIGURES says how people see the figures, in the table and on the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tailrace.bench.machine import describe_machine
from tailrace.bench.wire.broker import BrokerRun, Plan, ShapeResult
from tailrace.bench.wire.subject import Subject

INTERRUPTED = "interrupted"
_CLIENT_LIMIT = 0.9  # of a core: beyond that this process could hardly have sent more


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A column: the field of a load, and its heading."""

    key: str
    title: str

    def value_in(self, load: ShapeResult) -> float | None:
        value: float | None = getattr(load, self.key)
        return value


FIGURES = (
    Figure(key="per_s", title="per s"),
    Figure(key="mb_per_s", title="MB/s"),
    Figure(key="p50_ms", title="p50 ms"),
    Figure(key="p99_ms", title="p99 ms"),
    Figure(key="p999_ms", title="p99.9 ms"),
    Figure(key="cpu_us", title="CPU µs"),
    Figure(key="cpu_ms_per_mb", title="CPU ms/MB"),
    Figure(key="rss_mb", title="RSS MB"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """The figures of one run."""

    broker: dict[str, object]
    settings: dict[str, object]
    loads: Sequence[ShapeResult]
    stopped: str | None  # why there are fewer loads than were asked for
    machine: dict[str, object]

    def as_row(self) -> dict[str, object]:
        return asdict(self)

    def command(self) -> str:
        """What made it."""
        return "tailrace bench"

    def lines(self) -> dict[str, object]:
        """The broker and the settings as a person reads them."""
        return broker_lines(self)

    def figures(self) -> list[Figure]:
        """The columns in which there is anything."""
        return [each for each in FIGURES if any(each.value_in(load) is not None for load in self.loads)]

    def notes(self) -> list[str]:
        """What a reader should know before believing the figures."""
        busy = [load.name for load in self.loads if load.client_cpu >= _CLIENT_LIMIT]
        if not busy:
            return []
        return [f"This process was busy itself in {', '.join(busy)}: the broker may reach more."]


def report_of(subject: Subject, plan: Plan, run: BrokerRun) -> BrokerReport:
    """The report of a run, from this machine."""
    machine = describe_machine(Path())
    del machine["file_system"]  # ours, and not that of the broker's data
    return BrokerReport(
        broker=subject.facts(),
        settings={
            "seconds": plan.seconds,
            "acks": "all" if plan.acks == -1 else str(plan.acks),
            "partitions": plan.partitions,
            "record_bytes": plan.record_bytes,
            "loads": [shape.name for shape in plan.shapes],
        },
        loads=tuple(run.results),
        stopped=INTERRUPTED if run.interrupted else run.failure,
        machine=machine,
    )


def broker_lines(report: BrokerReport) -> dict[str, object]:
    """The broker and the settings as a person reads them."""
    broker, settings = report.broker, report.settings
    return {
        "broker": broker["address"],
        "nodes": broker["nodes"],
        "cluster id": broker["cluster_id"],
        "speaks": f"{broker['apis']} APIs, Produce {_versions(broker['produce_versions'])}, "
        f"Fetch {_versions(broker['fetch_versions'])}",
        "runs as": process_line(broker["processes"]),
        "topic": f"partitions {settings['partitions']}, acks {settings['acks']}",
        "single records": f"{settings['record_bytes']} bytes",
        "each load": f"{settings['seconds']:g} s",
    }


def write_value(value: float) -> str:
    """As a person reads it: the smaller, the more places."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _versions(found: object) -> str:
    assert isinstance(found, list)
    return f"{found[0]} to {found[1]}"


def process_line(found: object) -> str:
    """The broker's processes, as far as they can be seen."""
    assert isinstance(found, list)
    named = (f"{each['program']}, pid {each['pid']}" for each in found if isinstance(each, Mapping))
    return "; ".join(named) or "elsewhere, or not ours to look at"
