"""Servers up, steps in turns, servers down.

All servers run from the beginning to the end, but only one is loaded at a time. In every round each contender
runs each step once, and who goes first changes with the round. Whatever ends the run, servers are stopped and
their directories are removed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.goal import judge
from bench.native.contender import LOADS, STEPS, Contender
from bench.native.goal import GOALS
from bench.native.measure import Durations, client_core, measure_step
from bench.report import Report, ServerFacts
from bench.server import NotHere, Server
from tailrace.bench.machine import describe_machine

Note = Callable[[str], None]
Save = Callable[[Report], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How thoroughly."""

    rounds: int
    durations: Durations
    warm_up: Durations
    idle_s: float
    quick: bool = False

    def steps(self, contenders: Sequence[Contender]) -> int:
        """Starts, warm-ups and measurements: what a progress bar counts."""
        servers = len(servers_of(contenders))
        return servers + len(contenders) + self.rounds * sum(len(each.steps) for each in contenders)


FULL = Plan(
    rounds=5,
    durations=Durations(warm_s=0.4, seconds=1.6, latency_s=2.5),
    warm_up=Durations(warm_s=0.0, seconds=1.0, latency_s=1.0),
    idle_s=2.0,
)
QUICK = Plan(
    rounds=1,
    durations=Durations(warm_s=0.2, seconds=1.0, latency_s=1.5),
    warm_up=Durations(warm_s=0.0, seconds=0.3, latency_s=0.3),
    idle_s=0.5,
    quick=True,
)


def servers_of(contenders: Sequence[Contender]) -> list[Server]:
    """Each server once, in order."""
    return list(dict.fromkeys(contender.server for contender in contenders))


def run(
    contenders: Sequence[Contender],
    plan: Plan,
    *,
    directory: Path,
    note: Note,
    save: Save = lambda _report: None,
) -> Report:
    """Measure everything. Ctrl-C ends it early, with what there is; `save` is called after every round."""
    began = time.monotonic()
    report = Report(
        began=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        quick=plan.quick,
        machine={**describe_machine(directory), "client_core": client_core()},
        loads=dict(LOADS),
    )
    with tempfile.TemporaryDirectory(prefix="native-", dir=directory) as name, ExitStack() as stack:
        try:
            here = _start_all(contenders, plan, Path(name), stack, report, note)
            _run_rounds(here, plan, report, note, save)
        except KeyboardInterrupt:
            report.interrupted = True
        report.took_s = time.monotonic() - began
    report.goals = judge(report, GOALS)
    return report


def _start_all(
    contenders: Sequence[Contender], plan: Plan, place: Path, stack: ExitStack, report: Report, note: Note
) -> list[Contender]:
    """Start every server that is here; the contenders that can be measured."""
    running: set[Server] = set()
    for server in servers_of(contenders):
        note(f"starting {server.name}")
        try:
            next(each for each in contenders if each.server is server).find_client()
            server.find()
            stack.callback(server.stop)
            ready_s = server.start(place / server.name)
        except NotHere as error:
            report.skipped[server.name] = str(error)
            continue
        report.servers[server.name] = ServerFacts(version=server.version, ready_s=[ready_s])
        running.add(server)
    here = [each for each in contenders if each.server in running]
    report.targets = {each.name: each.title for each in here}
    _look_idle(servers_of(here), report, plan.idle_s)
    for each in here:
        note(f"warming up {each.name}")
        for step in each.steps:
            measure_step(step, each, plan.warm_up)  # uncounted; what fails here fails again where it counts
    return here


def _look_idle(servers: Sequence[Server], report: Report, seconds: float) -> None:
    """What they hold and use with nothing to do. The time is the measurement itself."""
    time.sleep(seconds)  # what starting left behind
    before = [server.usage() for server in servers]
    time.sleep(seconds)
    for server, was in zip(servers, before, strict=True):
        now, facts = server.usage(), report.servers[server.name]
        if was is not None and now is not None:
            facts.idle_rss_mb = now.rss_bytes / 1e6
            facts.idle_cpu = (now.cpu_s - was.cpu_s) / seconds


def _run_rounds(contenders: Sequence[Contender], plan: Plan, report: Report, note: Note, save: Save) -> None:
    for number in range(plan.rounds):
        turn = number % max(len(contenders), 1)
        for step in STEPS:
            for each in (*contenders[turn:], *contenders[:turn]):
                if step not in each.steps:
                    continue
                note(f"{step}: {each.name}, round {number + 1} of {plan.rounds}")
                found = measure_step(step, each, plan.durations)
                report.add(found, target=each.name, server=each.server.name, round_number=number + 1)
        save(report)
