"""`--user`, `--password-file`, `--token-file`, `--tls-*`, `--context`: as whom a command logs in, and how it
verifies the broker.

A password or a token is never an argument. All of them go into the environment of the command's own process,
where every client that it makes, and every process that it starts, finds them (`client.credentials`,
`client.tls`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import rich_click as click

Command = TypeVar("Command", bound=Callable[..., Any])

_USER = "TAILRACE_USER"
_PASSWORD_FILE = "TAILRACE_PASSWORD_FILE"
_PASSWORD = "TAILRACE_PASSWORD"
_TOKEN = "TAILRACE_TOKEN"
_TOKEN_FILE = "TAILRACE_TOKEN_FILE"
_TLS_CA = "TAILRACE_TLS_CA"
_TLS_CERT = "TAILRACE_TLS_CERT"
_TLS_KEY = "TAILRACE_TLS_KEY"
_TLS_INSECURE = "TAILRACE_TLS_INSECURE"


def login_option(command: Command, *, password_flag: str = "--password-file") -> Command:
    """Give a command `--user`, `--password-file` and the options of TLS, which it need not know of.

    `password_flag` is another name for the second one, where a command has a `--password-file` of its own.
    """
    user = click.option(
        "--user",
        metavar="NAME",
        expose_value=False,
        callback=_keep_user,
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
    token_file = click.option(
        "--token-file",
        metavar="FILE",
        expose_value=False,
        callback=_keep_token_file,
        help="Log in with the API token or JWT in this file. [env var: TAILRACE_TOKEN, TAILRACE_TOKEN_FILE]",
    )
    context = click.option(
        "--context",
        metavar="NAME",
        expose_value=False,
        is_eager=True,
        callback=_use_context,
        help="Use a saved context (tailrace context). [env var: TAILRACE_CONTEXT]",
    )
    return user(password_file(token_file(tls_option(context(command)))))


def tls_option(command: Command) -> Command:
    """Give a command the options by which it verifies a broker with TLS, which it need not know of."""
    ca = click.option(
        "--tls-ca",
        metavar="FILE",
        expose_value=False,
        callback=_keep(_TLS_CA),
        help="Connect with TLS, and trust the CA in this file; `system` trusts those of this machine. "
        "[env var: TAILRACE_TLS_CA]",
    )
    cert = click.option(
        "--tls-cert",
        metavar="FILE",
        expose_value=False,
        callback=_keep(_TLS_CERT),
        help="A certificate to present. [env var: TAILRACE_TLS_CERT]",
    )
    key = click.option(
        "--tls-key",
        metavar="FILE",
        expose_value=False,
        callback=_keep(_TLS_KEY),
        help="The key of --tls-cert. [env var: TAILRACE_TLS_KEY]",
    )
    insecure = click.option(
        "--tls-insecure",
        is_flag=True,
        default=None,
        expose_value=False,
        callback=_keep(_TLS_INSECURE),
        help="Connect with TLS and verify nothing, which protects from nobody on the way. "
        "[env var: TAILRACE_TLS_INSECURE]",
    )
    return ca(cert(key(insecure(command))))


def _keep_user(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """A user that is named takes the place of a token that the environment or a context names."""
    if value is not None and not context.resilient_parsing:
        if os.environ.get(_USER) not in (None, value):
            _forget(_PASSWORD, _PASSWORD_FILE)  # of another user
        _forget(_TOKEN, _TOKEN_FILE)
        _keep(_USER)(context, parameter, value)


def _keep_token_file(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and not context.resilient_parsing:
        _forget(_USER, _PASSWORD, _PASSWORD_FILE, _TOKEN)
        _keep(_TOKEN_FILE)(context, parameter, value)


def _use_context(context: click.Context, parameter: click.Parameter, value: str | None) -> None:  # noqa: ARG001
    """Before all other options, so that their variables are found."""
    if context.resilient_parsing:
        return
    from tailrace.cli.saved_context import (
        VARIABLE,
        apply_context,
        contexts_file,
        known_context,
        read_contexts,
    )

    saved = read_contexts(contexts_file(os.environ))
    name = value or os.environ.get(VARIABLE) or saved.current
    if name:
        apply_context(known_context(saved, name), os.environ)


def _forget(*variables: str) -> None:
    for each in variables:
        os.environ.pop(each, None)


def _keep(variable: str) -> Callable[[click.Context, click.Parameter, str | bool | None], None]:
    def keep(
        context: click.Context,
        parameter: click.Parameter,  # noqa: ARG001
        value: str | bool | None,
    ) -> None:
        if value is not None and not context.resilient_parsing:
            os.environ[variable] = value if isinstance(value, str) else "1"

    return keep
