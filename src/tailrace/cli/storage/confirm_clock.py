"""`tailrace storage confirm-clock`: a person says that the machine's time of day is right."""

from __future__ import annotations

import asyncio
from pathlib import Path

import rich_click as click

from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Output, examples, output_option


@click.command(name="confirm-clock", epilog=examples("tailrace storage confirm-clock ./tailrace-data"))
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@output_option
def command(directory: Path, output: Output) -> None:
    """Let records expire again, after a start whose clock was not believed.

    A broker writes down every minute what time it is. If it starts more than 31 days after that, its clock
    may be wrong, and a wrong clock would make it delete everything that has a retention. So nothing expires
    by the new time until it is confirmed here: no record, no committed offset, no message with a time to
    live. Stop the broker, look at `date`, run this, and start the broker again.
    """
    from tailrace.model import day_of
    from tailrace.storage.segment.last_seen import confirm_clock

    if not (directory / "journal").is_dir():
        raise CommandFailed(f"{directory} holds no log: it has no journal", exit_code=ExitCode.NOT_FOUND)
    before_ms, now_ms = asyncio.run(confirm_clock(directory))
    if output.format == "table":
        last = "never" if before_ms is None else day_of(before_ms)
        output.record({"the broker last ran": last, "confirmed": day_of(now_ms)})
    else:
        output.record({"last_seen_ms": before_ms, "confirmed_ms": now_ms})
