"""`tailrace audit`: the audit log of a running broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

import rich_click as click

from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.login import login_option
from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.model import escape

_HTTP: Final = "127.0.0.1:8080"
_WAIT_MS: Final = 25_000
_CALL_S: Final = 30.0
_COLUMNS: Final = (
    Column("time"),
    Column("event"),
    Column("result"),
    Column("principal"),
    Column("address"),
    Column("listener"),
    Column("mechanism"),
    Column("operation"),
    Column("resource"),
    Column("count", right=True),
)
_CODES: Final = {401: ExitCode.AUTH, 403: ExitCode.AUTH, 404: ExitCode.NOT_FOUND}


@click.group(name="audit", no_args_is_help=True)
def command() -> None:
    """Show who logged in, what was refused and what was changed."""


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """What both commands take."""
    for option in (
        click.option("--result", metavar="RESULT", help="Only ok, failed, denied, or this error."),
        click.option("--principal", metavar="KIND:NAME", help="Only of this principal, such as User:alice."),
        click.option("--event", metavar="EVENT", help="Only these: login, access, topic, user.create, ..."),
        click.option("--http", "address", default=_HTTP, show_default=True, metavar="HOST:PORT"),
    ):
        function = option(function)
    return function


@command.command(
    name="list",
    epilog=examples(
        "tailrace audit list",
        "tailrace audit list --event login --result failed",
        "tailrace audit list --principal User:alice --limit 1000 -o jsonl",
    ),
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="How many of the newest entries are looked at.",
)
@_options
@login_option
@output_option
def list_entries(
    limit: int, address: str, event: str | None, principal: str | None, result: str | None, output: Output
) -> None:
    """Show the newest entries of the audit log, the newest last."""
    wanted = {"event": event, "principal": principal, "result": result}
    answer = _ask(address, {"limit": limit, **wanted})
    output.rows((_row(each) for each in answer["entries"]), columns=_COLUMNS)


@command.command(
    name="tail",
    epilog=examples(
        "tailrace audit tail", "tailrace audit tail --event access", "tailrace audit tail -o jsonl"
    ),
)
@_options
@login_option
@output_option
def tail(address: str, event: str | None, principal: str | None, result: str | None, output: Output) -> None:
    """Show the newest entries of the audit log, and those that follow, until it is interrupted."""
    wanted = {"event": event, "principal": principal, "result": result}
    rows = (_row(each) for each in _follow(address, wanted))
    if output.format == "table":  # which is not known before its last row
        for row in rows:
            click.echo(escape("  ".join(_words(row))))
    else:
        Output("jsonl").rows(rows, columns=_COLUMNS)


def _words(row: dict[str, Any]) -> Iterator[str]:
    yield f"{row['time']}  {row['event']} {row['result']}"
    for name in ("principal", "address", "listener", "mechanism", "operation", "resource"):
        if row[name]:
            yield f"{name}={row[name]}"
    if row["count"] > 1:
        yield f"count={row['count']}"


def _follow(address: str, wanted: dict[str, str | None]) -> Iterator[dict[str, Any]]:
    answer = _ask(address, {"limit": 10, **wanted})
    while True:
        yield from answer["entries"]
        place = {"offset": answer["next_offset"], "limit": 1000, "timeout": _WAIT_MS}
        answer = _ask(address, {**place, **wanted})


def _ask(address: str, query: dict[str, Any]) -> Any:
    from tailrace.cli.rest import call, message_of

    given = urlencode({name: value for name, value in query.items() if value is not None})
    status, answer = call(address, "GET", f"/api/v1/audit?{given}", timeout_s=_CALL_S)
    if status >= 400:
        raise CommandFailed(message_of(answer, status), exit_code=_CODES.get(status, ExitCode.ERROR))
    return answer


def _row(entry: dict[str, Any]) -> dict[str, Any]:
    time = datetime.fromtimestamp(entry["time_ms"] / 1000, UTC)
    return {"time": time.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3], **entry}
