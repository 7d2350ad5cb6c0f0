"""`python -m bench.transactions`: which servers, how thoroughly, and where the results go."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bench.child import ask_child
from bench.command import RESULTS, progress, terminated_as_interrupted
from bench.native.measure import client_core
from bench.server import NotHere, Server
from bench.server.kafka import KafkaServer
from bench.server.tailrace import TailraceServer
from bench.transactions.load import Load, plan_loads
from bench.transactions.table import as_markdown, overview
from tailrace.bench.machine import describe_machine
from tailrace.bench.wire import LoadError

_MODULE = "bench.transactions.client"
_PATIENCE_S = 120.0
_WARM_S = 0.5
Rows = dict[str, dict[str, list[dict[str, float]]]]


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0.1), default=2.0, show_default=True)
@click.option("--only", default="", metavar="LOADS", help="Loads by the beginning of their names.")
@click.option("--peers/--no-peers", default=True, help="Whether Apache Kafka is measured too.")
@click.option("--dir", "directory", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, show_default=True)
def command(rounds: int, seconds: float, only: str, peers: bool, directory: Path | None, out: Path) -> None:
    """Measure transactions beside Apache Kafka, and write a table and JSON.

    Measure a quiet machine: other work shows in every figure. It takes about six minutes.
    """
    wanted = tuple(filter(None, only.split(",")))
    loads = [load for load in plan_loads() if not wanted or load.name.startswith(wanted)]
    servers: list[Server] = [TailraceServer(fsync="commit"), *([KafkaServer()] if peers else [])]
    place = directory or Path.cwd()
    report: dict[str, Any] = {"load_before": os.getloadavg()[0], "rounds": rounds, "seconds": seconds}
    with (
        tempfile.TemporaryDirectory(prefix="transactions-", dir=place) as made,
        ExitStack() as stack,
        terminated_as_interrupted(),
        progress(len(loads) * rounds * len(servers)) as note,
    ):
        here, report["skipped"] = _start(servers, Path(made), stack)
        rows = _run(here, loads, rounds=rounds, seconds=seconds, note=note, report=report)
        report["machine"] = describe_machine(place)
    report |= {
        "ended": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load_after": os.getloadavg()[0],
        "versions": {server.name: server.version for server in here},
        "samples": rows,
        "figures": {name: _medians(found) for name, found in rows.items()},
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "transactions.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (out / "transactions.md").write_text(as_markdown(report), encoding="utf-8")
    click.echo("\n\n".join(overview(report)))
    for name, why in report["skipped"].items():
        click.echo(f"not measured: {name}: {why}")


def _start(servers: list[Server], place: Path, stack: ExitStack) -> tuple[list[Server], dict[str, str]]:
    here, skipped = [], {}
    for server in servers:
        try:
            server.find()
            stack.callback(server.stop)
            server.start(place / server.name)
        except NotHere as error:
            skipped[server.name] = str(error)
        else:
            here.append(server)
    return here, skipped


def _run(
    servers: list[Server],
    loads: list[Load],
    *,
    rounds: int,
    seconds: float,
    note: Callable[[str], None],
    report: dict[str, Any],
) -> Rows:
    """Every load on every server in every round; who goes first changes with the round."""
    rows: Rows = {server.name: defaultdict(list) for server in servers}
    for number in range(rounds):
        for load in loads:
            for server in servers if number % 2 == 0 else reversed(servers):
                note(f"{load.name} on {server.name}")
                os.sync()  # what the one before wrote is not written during this one
                row = _ask(server, load, seconds)
                if "error" in row:
                    report["skipped"][f"{load.name} on {server.name}"] = row["error"]
                else:
                    rows[server.name][load.name].append(row)
    return rows


def _ask(server: Server, load: Load, seconds: float) -> dict[str, Any]:
    job = {
        **load.job,
        "port": server.port,
        "topic": f"bench-{uuid.uuid4().hex[:12]}",
        "core": client_core(),
        "warm_s": _WARM_S,
        "seconds": seconds,
    }
    try:
        return ask_child(_MODULE, job, timeout_s=seconds + _PATIENCE_S)
    except (LoadError, OSError) as error:
        return {"error": str(error)}


def _medians(rows: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        load: {figure: statistics.median(row[figure] for row in found) for figure in found[0]}
        for load, found in rows.items()
    }
