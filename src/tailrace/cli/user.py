"""`tailrace user`: who may log in. On a running broker over its HTTP listener, else in its data directory.

A password is asked for, read from a file or from stdin, or made; it is never an argument, which every user of
the machine could read in the list of processes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.connection import confirm
from tailrace.cli.data_directory import Place, place_option
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.cli.user_access import UserAccess
from tailrace.model import escape

if TYPE_CHECKING:
    from tailrace.security import Secret


@click.group(name="user", no_args_is_help=True)
def command() -> None:
    """Create, list, disable and delete the users that may log in.

    A listener asks for a login if its [[listeners]] entry in tailrace.toml has `sasl`.
    """


def _access_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where users are; it receives a `UserAccess` as `access`."""

    @functools.wraps(command)
    def found(*args: Any, place: Place, **options: Any) -> Any:
        return command(*args, access=UserAccess(place), **options)

    flag = "--login-password-file" if hasattr(command, "takes_password") else "--password-file"
    return place_option("users", password_flag=flag)(found)


def _password_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for a new password; it receives what they say as `new`.

    Below `_access_option`, which then has another name for the file with the caller's own password.
    """

    @functools.wraps(command)
    def given(*args: Any, new_password_file: str | None, generate: bool, **options: Any) -> Any:
        if generate and new_password_file is not None:
            raise click.UsageError("--generate and --password-file exclude each other.")
        return command(*args, new=NewPassword(new_password_file, generate=generate), **options)

    file = click.option(
        "--password-file",
        "new_password_file",
        metavar="FILE",
        help="Read the user's password from a file; - is stdin. Without this it is asked for.",
    )
    generate = click.option("--generate", is_flag=True, help="Make a password, and print it once.")
    wrapped = file(generate(given))
    wrapped.takes_password = True  # type: ignore[attr-defined]
    return wrapped


class NewPassword:
    """Where the password of a user comes from."""

    def __init__(self, file: str | None, *, generate: bool) -> None:
        self._file = file
        self.generated = generate

    def read(self, name: str) -> Secret:
        from tailrace.client.credentials import password_text, read_password_file
        from tailrace.security import Secret
        from tailrace.security.password import generate_password

        if self.generated:
            return generate_password()
        if self._file is not None and self._file != "-":
            return read_password_file(Path(self._file))
        if self._file == "-" or not sys.stdin.isatty():
            return password_text(sys.stdin.buffer.readline(8192), what="the password on stdin")
        text = click.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True, type=str
        )
        return Secret(text)


# ---- the commands


@command.command(
    name="create",
    epilog=examples(
        "tailrace user create alice",
        "tailrace user create alice --generate",
        "tailrace user create admin --config ./secure/tailrace.toml --password-file admin.password",
    ),
)
@click.argument("name")
@_access_option
@_password_option
@output_option
def create_user(name: str, new: NewPassword, access: UserAccess, output: Output) -> None:
    """Create a user who may log in by SCRAM-SHA-256, SCRAM-SHA-512, PLAIN and HTTP Basic."""
    from tailrace.security.password import check_password, check_user_name

    check_user_name(name)
    password = new.read(name)
    check_password(password, user=name)
    access.create(name, password)
    _tell(output, name, "created", password if new.generated else None)


@command.command(
    name="passwd", epilog=examples("tailrace user passwd alice", "tailrace user passwd alice --generate")
)
@click.argument("name")
@_access_option
@_password_option
@output_option
def set_password(name: str, new: NewPassword, access: UserAccess, output: Output) -> None:
    """Give a user another password. Connections that are open stay."""
    from tailrace.security.password import check_password

    password = new.read(name)
    check_password(password, user=name)
    access.set_password(name, password)
    _tell(output, name, "has a new password", password if new.generated else None)


@command.command(
    name="disable",
    epilog=examples("tailrace user disable alice", "tailrace user disable 'User:CN=alice'"),
)
@click.argument("name")
@_access_option
@output_option
def disable_user(name: str, access: UserAccess, output: Output) -> None:
    """Let a user log in no more, and end its connections.

    User:NAME disables a principal from elsewhere: of a client certificate, or of a JWT.
    """
    access.set_enabled(name, enabled=False)
    _tell(output, name, "disabled")


@command.command(name="enable", epilog=examples("tailrace user enable alice"))
@click.argument("name")
@_access_option
@output_option
def enable_user(name: str, access: UserAccess, output: Output) -> None:
    """Let a user that was disabled log in again."""
    access.set_enabled(name, enabled=True)
    _tell(output, name, "enabled")


@command.command(name="delete", epilog=examples("tailrace user delete alice --yes"))
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@_access_option
@output_option
def delete_user(name: str, yes: bool, dry_run: bool, access: UserAccess, output: Output) -> None:
    """Delete a user, and end its connections."""
    if name not in {each["name"] for each in access.list()}:
        raise CommandFailed(
            f"there is no user {name!r}. Try: tailrace user list", exit_code=ExitCode.NOT_FOUND
        )
    if dry_run:
        _tell(output, name, "would be deleted")
        return
    confirm(f"Delete user {escape(name)}?", yes=yes)
    access.delete(name)
    _tell(output, name, "deleted")


@command.command(name="list", epilog=examples("tailrace user list", "tailrace user list -o json"))
@_access_option
@output_option
def list_users(access: UserAccess, output: Output) -> None:
    """List users, whether they may log in, and by which SCRAM mechanisms."""
    columns = [Column("name"), Column("enabled"), Column("mechanisms", show=lambda each: ", ".join(each))]
    output.rows(access.list(), columns=columns)


def _tell(output: Output, name: str, done: str, password: Secret | None = None) -> None:
    if output.format == "table":
        click.echo(f"user {escape(name)} {done}")
        if password is not None:
            click.echo(f"password: {password.reveal()}")
    else:
        shown = {} if password is None else {"password": password.reveal()}
        output.record({"name": name, "result": done, **shown})
