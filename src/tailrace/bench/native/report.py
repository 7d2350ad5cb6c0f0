"""What a run of `tailrace bench native` found: that of `tailrace bench` with other facts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tailrace.bench.broker_report import INTERRUPTED, BrokerReport, process_line
from tailrace.bench.machine import describe_machine
from tailrace.bench.native.load import IN_FLIGHT, PER_S, PREFETCH
from tailrace.bench.native.run import NativePlan
from tailrace.bench.native.subject import NativeSubject
from tailrace.bench.wire.broker import BrokerRun


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeReport(BrokerReport):
    """The figures of one run; the keys of its JSON are those of `tailrace bench`."""

    def command(self) -> str:
        return "tailrace bench native"

    def lines(self) -> dict[str, object]:
        settings = self.settings
        return {
            "broker": self.broker["address"],
            "runs as": process_line(self.broker["processes"]),
            "messages": f"{settings['body_bytes']} bytes",
            "in flight": f"{settings['in_flight']} publishes, {settings['prefetch']} deliveries",
            "each load": f"{settings['seconds']:g} s",
        }


def native_report_of(subject: NativeSubject, plan: NativePlan, run: BrokerRun) -> NativeReport:
    """The report of a run, from this machine."""
    machine = describe_machine(Path())
    del machine["file_system"]  # ours, and not that of the broker's data
    return NativeReport(
        broker=subject.facts(),
        settings={
            "seconds": plan.seconds,
            "body_bytes": plan.body_bytes,
            "in_flight": IN_FLIGHT,
            "prefetch": PREFETCH,
            "latency_per_s": PER_S,
        },
        loads=tuple(run.results),
        stopped=INTERRUPTED if run.interrupted else run.failure,
        machine=machine,
    )
