"""`tailrace up`: parses its flags, reads the configuration and hands over to `tailrace.server.run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import rich_click as click

from tailrace.cli.config import config_option
from tailrace.cli.output import examples


@click.command(
    name="up",
    epilog=examples(
        "tailrace up",
        "tailrace up --demo",
        "tailrace up --demo --pipelines",
        "tailrace up --kafka-port 0 --native-port 0 --http-port 0 --data-dir /var/lib/tailrace",
        "tailrace up --engine memory",
        "TAILRACE_TIERED__POSTGRES_DSN_FILE=/run/secrets/dsn tailrace up --engine tiered",
        "TAILRACE_KAFKA_PORT=19092 tailrace up",
    ),
)
@click.option("--host", metavar="ADDRESS", show_default="127.0.0.1", help="The address to listen on.")
@click.option(
    "--kafka-port",
    metavar="PORT",
    show_default="9092",
    help="The port of the Kafka listener; 0 is any free one.",
)
@click.option(
    "--native-port",
    metavar="PORT",
    show_default="9999",
    help="The port of the native listener; 0 is any free one.",
)
@click.option(
    "--http-port",
    metavar="PORT",
    show_default="8080",
    help="The port of the HTTP listener: console, REST, metrics; 0 is any free one.",
)
@click.option("--data-dir", metavar="DIR", show_default="./tailrace-data", help="Where everything is kept.")
@click.option(
    "--engine",
    metavar="segment|memory|tiered",
    show_default="segment",
    help="How records are kept: in files, in memory, or in PostgreSQL and Redis.",
)
@click.option(
    "--fsync",
    metavar="commit|interval:<ms>|os",
    show_default="commit",
    help="What an acknowledgement means: on the disk, or only written.",
)
@click.option(
    "--demo",
    is_flag=True,
    envvar="TAILRACE_DEMO",
    help="Write and read demo topics: orders, payments and clicks.",
)
@click.option(
    "--pipelines",
    is_flag=True,
    envvar="TAILRACE_PIPELINES",
    help="Run the pipelines of the configuration file on this broker; with --demo and without any, archive "
    "the demo topics into DATA-DIR/lake. Needs Spark: pip install 'tailrace[spark]', and Java.",
)
@config_option
def command(
    host: str | None,
    kafka_port: str | None,
    native_port: str | None,
    http_port: str | None,
    data_dir: str | None,
    engine: str | None,
    fsync: str | None,
    demo: bool,
    pipelines: bool,
    config_file: Path | None,
) -> None:
    """Run a broker in the foreground.

    It prints `ready` when it serves, and stops cleanly on Ctrl-C. Flags win over TAILRACE_* variables, those
    over the configuration file, and that over the defaults: see `tailrace config show`. A flag's variable has
    its name: `--kafka-port` is TAILRACE_KAFKA_PORT.
    """
    flags = {
        "server.host": host,
        "server.kafka_port": kafka_port,
        "native.port": native_port,
        "http.port": http_port,
        "storage.data_dir": data_dir,
        "storage.engine": engine,
        "storage.fsync": fsync,
    }
    try:
        _serve(flags, demo=demo, pipelines=pipelines, config_file=config_file)
    except (
        KeyboardInterrupt
    ):  # before the node heeds signals; Ctrl-C is how this command ends, and no failure
        click.echo("stopped before it served", err=True)


def _serve(flags: Mapping[str, object], *, demo: bool, pipelines: bool, config_file: Path | None) -> None:
    from tailrace.server.configuration import DEFAULT, read_config
    from tailrace.server.run import run_server

    configuration = read_config(flags=flags, environment=os.environ, file=config_file)
    config = configuration.server()
    if sys.stdout.isatty() and configuration.values["log.level"].source == DEFAULT:
        config = replace(config, log_level="warning")  # a person watches the screen, not the log
    plan = None
    if pipelines:
        from tailrace.server.pipelines import plan_pipelines

        plan = plan_pipelines(configuration, demo=demo)
    run_server(config, demo=demo, pipelines=plan)
