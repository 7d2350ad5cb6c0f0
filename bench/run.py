"""Servers up, loads in turns, servers down; then Tailrace alone, for its cost against size.

All servers run from the beginning to the end, so that a virtual machine stays warm, but only one is loaded at
a time; what each uses while idle is in the report. For every load each target runs once per round, and who
goes first changes with the round. Whatever ends the run, servers are stopped and their directories are
removed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.child import ask_child
from bench.goal import judge
from bench.load import PRODUCERS, WIRE, ClientLoad, Load, Part, WireJob
from bench.measure import Durations, measure
from bench.report import Report, Row, ServerFacts
from bench.scaling import Curve, run_curves
from bench.scaling.run import count_points
from bench.server import NotHere, Server
from bench.server.process import HOST
from bench.target import Target, servers_of
from tailrace.bench.machine import describe_machine
from tailrace.bench.wire import LoadError
from tailrace.bench.wire.bare import TOPIC as BARE_TOPIC

Note = Callable[[str], None]
Save = Callable[[Report], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How thoroughly."""

    rounds: int
    client_rounds: int  # of real clients, whose many shapes take the most time
    durations: Durations
    warm_up: Durations
    starts: int  # of every server, to see how long it takes
    idle_s: float
    quick: bool = False

    def steps(self, loads: Sequence[Load], targets: Sequence[Target], curves: Sequence[Curve] = ()) -> int:
        """Measurements, warm-ups and starts: what a progress bar counts."""
        points = count_points(curves, quick=self.quick)
        if not loads:
            return points
        measured = sum(self.rounds_of(load) for load in loads for target in targets if target.takes(load))
        return measured + 2 * len(servers_of(targets)) + 1 + points

    def rounds_of(self, load: Load) -> int:
        return self.client_rounds if isinstance(load, ClientLoad) else self.rounds


FULL = Plan(
    rounds=4,
    client_rounds=2,
    durations=Durations(warm_s=0.4, seconds=1.1, client_s=1.2, latency_s=4.0),
    warm_up=Durations(warm_s=0.0, seconds=3.0, client_s=0.0, latency_s=0.0),
    starts=2,
    idle_s=2.0,
)
QUICK = Plan(
    rounds=1,
    client_rounds=1,
    durations=Durations(warm_s=0.2, seconds=0.5, client_s=0.5, latency_s=1.5),
    warm_up=Durations(warm_s=0.0, seconds=0.4, client_s=0.0, latency_s=0.0),
    starts=1,
    idle_s=0.5,
    quick=True,
)

_WARM_UP = ("unbatched", "produce-16k", "fetch-16k")


def run(
    targets: Sequence[Target],
    loads: Sequence[Load],
    plan: Plan,
    *,
    directory: Path,
    note: Note,
    save: Save = lambda _report: None,
    curves: Sequence[Curve] = (),
) -> Report:
    """Measure everything; without loads no peer is started.

    Ctrl-C ends it early, with what there is; `save` is called after every load and every curve.
    """
    began = time.monotonic()
    report = Report(
        began=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        quick=plan.quick,
        machine=describe_machine(directory),
    )
    with tempfile.TemporaryDirectory(prefix="peers-", dir=directory) as name:
        try:
            if loads:
                _run_peers(targets, loads, plan, Path(name), report, note, save)
            run_curves(curves, plan.durations, report, directory=Path(name), note=note, save=save)
        except KeyboardInterrupt:
            report.interrupted = True
        report.took_s = time.monotonic() - began
    if loads:
        report.goals = judge(report)
    return report


def _run_peers(
    targets: Sequence[Target],
    loads: Sequence[Load],
    plan: Plan,
    place: Path,
    report: Report,
    note: Note,
    save: Save,
) -> None:
    """Every load on every target; the servers are stopped at the end of it."""
    report.ceiling = measure_ceiling(plan.durations, note)
    with ExitStack() as stack:
        here = _start_all(targets, plan, place, stack, report, note)
        _run_loads(here, loads, plan, report, note, save)


def _start_all(
    targets: Sequence[Target], plan: Plan, place: Path, stack: ExitStack, report: Report, note: Note
) -> list[Target]:
    """Start every server that is here; the targets that can be measured."""
    running: set[Server] = set()
    for server in servers_of(targets):
        note(f"starting {server.name}")
        try:
            server.find()
            facts = ServerFacts(version=server.version)
            stack.callback(server.stop)
            for number in range(plan.starts):
                server.stop()
                facts.ready_s.append(server.start(place / f"{server.name}-{number}"))
            _look_idle(server, facts, plan.idle_s)
        except NotHere as error:
            report.skipped[server.name] = str(error)
            continue
        report.servers[server.name] = facts
        running.add(server)
    here = [target for target in targets if target.server in running]
    report.targets = {target.name: target.title for target in here}
    for server in servers_of(here):
        note(f"warming up {server.name}")
        _warm_up(next(target for target in here if target.server is server), plan)
    return here


def _look_idle(server: Server, facts: ServerFacts, seconds: float) -> None:
    """What it holds and uses with nothing to do. The time is the measurement itself."""
    time.sleep(seconds)  # what starting left behind
    before = server.usage()
    time.sleep(seconds)
    after = server.usage()
    if before is not None and after is not None:
        facts.idle_rss_mb = after.rss_bytes / 1e6
        facts.idle_cpu = (after.cpu_s - before.cpu_s) / seconds


def _warm_up(target: Target, plan: Plan) -> None:
    """Uncounted; what fails here fails again where it is counted."""
    for load in (*WIRE, *PRODUCERS):
        if load.name in _WARM_UP:
            with suppress(LoadError, OSError):
                measure(load, target, plan.warm_up)


def _run_loads(
    targets: Sequence[Target], loads: Sequence[Load], plan: Plan, report: Report, note: Note, save: Save
) -> None:
    for load in loads:
        takers = [target for target in targets if target.takes(load)]
        report.loads.update(titles_of(load))
        rounds = plan.rounds_of(load)
        for number in range(rounds):
            turn = number % max(len(takers), 1)
            for target in (*takers[turn:], *takers[:turn]):
                note(f"{load.name}: {target.name}, round {number + 1} of {rounds}")
                found = _measure_once(load, target, plan.durations)
                report.add(found, target=target.name, server=target.server.name, round_number=number + 1)
        save(report)


def titles_of(load: Load) -> dict[str, str]:
    """The names that its figures have in the report."""
    if isinstance(load, ClientLoad):
        return {f"{load.name}-in": f"{load.title}, produce", f"{load.name}-out": f"{load.title}, consume"}
    return {load.name: load.title}


def _measure_once(load: Load, target: Target, durations: Durations) -> dict[str, Row]:
    os.sync()  # what the one before wrote is not written during this one
    try:
        return measure(load, target, durations)
    except (LoadError, OSError) as error:
        return {name: {"error": str(error)} for name in titles_of(load)}


def measure_ceiling(durations: Durations, note: Note) -> Row:
    """What the generator reaches against a handler that answers and does nothing else."""
    note("the generator alone")
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace.bench.wire.bare"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        port = int(process.stdout.readline())
        found: Row = {}
        for name, part in (
            ("unbatched_per_s", Part(kind="produce", connections=8, in_flight=5)),
            ("produce_1m_mb_per_s", Part(kind="produce", connections=4, in_flight=2, batch_bytes=1_000_000)),
        ):
            job = WireJob(
                dialect="bare",
                host=HOST,
                port=port,
                durable=False,
                pid=process.pid,
                parts=(part,),
                warm_s=durations.warm_s,
                seconds=durations.seconds,
                topic=BARE_TOPIC.removesuffix("-part0"),
            )
            row = ask_child("bench.generator", job.as_row(), timeout_s=60)
            found[name] = row["mb_per_s" if part.batch_bytes else "per_s"]
            if not part.batch_bytes:
                found["generator_cores"] = row["driver_cpu"]
    finally:
        process.stdin.close()
        process.stdout.close()
        process.kill()
        process.wait()
    return found
