"""`tailrace doctor`: shows what `tailrace.server.checkup` finds."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from tailrace.cli.config import config_option
from tailrace.cli.exit import CommandFailed
from tailrace.cli.login import login_option
from tailrace.cli.output import Column, Output, examples, output_option

if TYPE_CHECKING:
    from tailrace.broker.health import Finding


@click.command(
    name="doctor",
    epilog=examples(
        "tailrace doctor",
        "tailrace doctor --data-dir /var/lib/tailrace",
        "tailrace doctor --bootstrap broker.lan:9092 -o json",
    ),
)
@click.option("--data-dir", metavar="DIR", show_default="./tailrace-data", help="The directory to look at.")
@click.option("--kafka-port", metavar="PORT", show_default="9092", help="The Kafka listener's port.")
@click.option("--native-port", metavar="PORT", show_default="9999", help="The native listener's port.")
@click.option("--http-port", metavar="PORT", show_default="8080", help="The HTTP listener's port.")
@click.option(
    "--bootstrap", metavar="HOST:PORT", show_default="the one that runs here, if any", help="A broker to ask."
)
@config_option
@login_option
@output_option
def command(
    data_dir: str | None,
    kafka_port: str | None,
    native_port: str | None,
    http_port: str | None,
    bootstrap: str | None,
    config_file: Path | None,
    output: Output,
) -> None:
    """Look for what keeps a broker from running well.

    Exit code 1 if there is a problem; a warning is none.
    """
    from tailrace.server.checkup import examine
    from tailrace.server.configuration import read_config

    flags = {
        "storage.data_dir": data_dir,
        "server.kafka_port": kafka_port,
        "native.port": native_port,
        "http.port": http_port,
    }
    config = read_config(flags=flags, environment=os.environ, file=config_file).server()
    findings: list[Finding] = []
    rows = (_noted(finding, findings) for finding in examine(config, bootstrap=bootstrap))
    columns = [Column("status", title=""), Column("check"), Column("found"), Column("advice")]
    if output.format == "json":
        rows_shown = list(rows)
        output.record({"healthy": not _problems(findings), "findings": rows_shown})
    else:
        output.rows(rows, columns=columns)
    if count := _problems(findings):
        raise CommandFailed(f"{count} problem{'s' if count > 1 else ''} found")


def _noted(finding: Finding, findings: list[Finding]) -> dict[str, object]:
    findings.append(finding)
    return asdict(finding)


def _problems(findings: list[Finding]) -> int:
    return sum(finding.status == "problem" for finding in findings)
