"""`--user` and `--password-file`: as whom a command logs in. A password is never an argument.

Both go into the environment of the command's own process, where every client that it makes, and every process
that it starts, finds them (`client.credentials.from_environment`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import rich_click as click

Command = TypeVar("Command", bound=Callable[..., Any])

_USER = "TAILRACE_USER"
_PASSWORD_FILE = "TAILRACE_PASSWORD_FILE"


def login_option(command: Command, *, password_flag: str = "--password-file") -> Command:
    """Give a command `--user` and `--password-file`, which it need not know of.

    `password_flag` is another name for the second one, where a command has a `--password-file` of its own.
    """
    user = click.option(
        "--user",
        metavar="NAME",
        expose_value=False,
        callback=_keep(_USER),
        help="Log in as this user. [env var: TAILRACE_USER]",
    )
    password_file = click.option(
        password_flag,
        "login_password_file",
        metavar="FILE",
        expose_value=False,
        callback=_keep(_PASSWORD_FILE),
        help="The file with the password of --user. [env var: TAILRACE_PASSWORD, TAILRACE_PASSWORD_FILE]",
    )
    return user(password_file(command))


def _keep(variable: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def keep(context: click.Context, parameter: click.Parameter, value: str | None) -> None:  # noqa: ARG001
        if value is not None and not context.resilient_parsing:
            os.environ[variable] = value

    return keep
