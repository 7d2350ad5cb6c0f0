"""`tailrace token`: API tokens, which act for a user within a scope; on a broker that runs or does not."""

from __future__ import annotations

from typing import Any

import rich_click as click

from tailrace.cli.connection import confirm
from tailrace.cli.data_directory import Place, place_option
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.cli.token_access import TokenAccess
from tailrace.model import escape

_place_option = place_option("API tokens")


@click.group(name="token", no_args_is_help=True)
def command() -> None:
    """Create, list and revoke API tokens.

    A token acts for a user within a scope. A program sends it as HTTP Bearer, or as the password of the user
    `token`.
    """


@command.command(
    name="create",
    epilog=examples(
        "tailrace token create --scope read:topic:orders --scope read:group:mail",
        "tailrace token create --scope write:topic:orders-* --expires 90d --name shop",
        "tailrace token create --scope describe:cluster --owner prometheus --data-dir ./tailrace-data",
    ),
)
@click.option(
    "--scope",
    "scope_texts",
    metavar="PERMISSION",
    multiple=True,
    required=True,
    help="What the token may do, OPERATION:KIND:NAME; several times. `all`: everything that its owner may.",
)
@click.option(
    "--expires", metavar="TIME", default="30d", show_default=True, help="For how long it lives; 365d at most."
)
@click.option("--name", default="", help="What it is for.")
@click.option("--owner", metavar="USER", default="", show_default="the caller", help="For whom it acts.")
@_place_option
@output_option
def create_token(
    scope_texts: tuple[str, ...], expires: str, name: str, owner: str, place: Place, output: Output
) -> None:
    """Create an API token, and print it once."""
    from tailrace.model.duration import parse_duration_ms
    from tailrace.model.scope import read_scope

    try:
        scope = read_scope(list(scope_texts))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    lifetime_ms = parse_duration_ms(expires)
    made = TokenAccess(place).create(owner, scope=scope, lifetime_ms=lifetime_ms, name=name)
    if output.format == "table":
        click.echo(made["token"])
        click.echo(
            f"token {made['id']} of {escape(made['owner'])}, until {_moment(made['expires_ms'])}. "
            "It is not shown again.",
            err=True,
        )
    else:
        output.record(made)


@command.command(name="list", epilog=examples("tailrace token list", "tailrace token list -o json"))
@click.option("--owner", metavar="USER", default="", help="Those of one user.")
@_place_option
@output_option
def list_tokens(owner: str, place: Place, output: Output) -> None:
    """List API tokens: whose they are, what they may do, and when they were used last, to the hour."""
    columns = [
        Column("id"),
        Column("owner"),
        Column("name"),
        Column("scope", show=", ".join),
        Column("expires_ms", "expires", show=_moment),
        Column("used_ms", "last used", show=_moment),
    ]
    output.rows(TokenAccess(place).list(owner), columns=columns)


@command.command(name="revoke", epilog=examples("tailrace token revoke 4f1c09ab62d7e835 --yes"))
@click.argument("token_id", metavar="ID")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@_place_option
@output_option
def revoke_token(token_id: str, yes: bool, dry_run: bool, place: Place, output: Output) -> None:
    """Revoke an API token, and end what is connected by it."""
    if token_id.startswith("trt_"):
        raise click.UsageError("name the id of the token, and not the token itself. See: tailrace token list")
    access = TokenAccess(place)
    if token_id not in {each["id"] for each in access.list("")}:
        raise CommandFailed(
            "there is no API token of this id. Try: tailrace token list", exit_code=ExitCode.NOT_FOUND
        )
    if dry_run:
        _tell(output, {"id": token_id, "result": "would be revoked"}, f"token {token_id} would be revoked")
        return
    confirm(f"Revoke token {escape(token_id)}?", yes=yes)
    access.revoke(token_id)
    _tell(output, {"id": token_id, "result": "revoked"}, f"token {token_id} revoked")


@command.command(
    name="rotate-key", epilog=examples("tailrace token rotate-key", "tailrace token rotate-key --drop")
)
@click.option("--drop", is_flag=True, help="End the tokens that were not used since the last rotation.")
@_place_option
@output_option
def rotate_key(drop: bool, place: Place, output: Output) -> None:
    """Make another server key for API tokens. Each token moves to it when it is used; none changes."""
    count = TokenAccess(place).rotate_key(drop=drop)
    _tell(output, {"tokens": count}, f"a new key; {count} tokens move to it when they are used")


def _tell(output: Output, record: dict[str, Any], text: str) -> None:
    if output.format == "table":
        click.echo(text)
    else:
        output.record(record)


def _moment(at_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%MZ")
