"""`tailrace context`: save where brokers are and how to log in there, and choose among them."""

from __future__ import annotations

import os
from dataclasses import replace

import rich_click as click

from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.cli.saved_context import (
    FIELDS,
    SavedContexts,
    check_context,
    contexts_file,
    known_context,
    read_contexts,
    write_contexts,
)
from tailrace.model import ConfigError, escape


@click.group(name="context", no_args_is_help=True)
def command() -> None:
    """Save where brokers are and how to log in there.

    A command uses the context of --context or TAILRACE_CONTEXT, else the one that is in use. Flags win over
    the environment, and that over the context.
    """


@command.command(
    name="add",
    epilog=examples(
        "tailrace context add local --bootstrap 127.0.0.1:9092 --http 127.0.0.1:8080",
        "tailrace context add prod --bootstrap broker.example:9092 --user alice "
        '--password-command "pass show tailrace" --tls-ca ca.crt',
    ),
)
@click.argument("name")
@click.option("--bootstrap", metavar="HOST:PORT", help="The Kafka listener.")
@click.option("--native", metavar="HOST:PORT", help="The native listener.")
@click.option("--http", metavar="HOST:PORT", help="The HTTP listener.")
@click.option("--user", metavar="NAME", help="Log in as this user.")
@click.option("--password-file", metavar="FILE", help="The file with its password.")
@click.option("--password-command", metavar="COMMAND", help="A command that prints its password.")
@click.option("--token-file", metavar="FILE", help="The file with an API token or a JWT.")
@click.option("--tls-ca", metavar="FILE", help="Connect with TLS, and trust the CA in this file.")
@click.option("--use", is_flag=True, help="Use it from now on. The first context is used anyway.")
def add_context(name: str, use: bool, **given: str | None) -> None:
    """Save a context, in the place of the one of this name."""
    fields = {key: _path(key, value) for key, value in given.items() if value}
    if not fields:
        raise click.UsageError("A context says something: see --bootstrap, --http, --user and the others.")
    check_context(name, fields)
    saved = _read()
    current = name if use or not saved.contexts else saved.current
    _write(SavedContexts({**saved.contexts, name: fields}, current))
    click.echo(f"context {escape(name)} saved" + (", and in use" if current == name else ""))


@command.command(name="use", epilog=examples("tailrace context use prod", "tailrace context use --none"))
@click.argument("name", required=False)
@click.option("--none", "is_none", is_flag=True, help="Use no context.")
def use_context(name: str | None, is_none: bool) -> None:
    """Use a context for the commands that follow."""
    if (name is None) is not is_none:
        raise click.UsageError("Name a context, or say --none.")
    saved = _read()
    if name is not None:
        known_context(saved, name)
    _write(replace(saved, current=name or ""))
    click.echo("no context is in use" if name is None else f"context {escape(name)} in use")


@command.command(name="list", epilog=examples("tailrace context list", "tailrace context list -o json"))
@output_option
def list_contexts(output: Output) -> None:
    """List the saved contexts; the one in use is marked."""
    saved = _read()
    rows = [
        {"name": name, "current": name == saved.current, **{key: fields.get(key) for key in FIELDS}}
        for name, fields in sorted(saved.contexts.items())
    ]
    columns = [
        Column("current", "in use", show=lambda each: "*" if each else ""),
        *(Column(key) for key in ("name", "bootstrap", "native", "http", "user", "tls_ca")),
    ]
    output.rows(rows, columns=columns)


@command.command(name="remove", epilog=examples("tailrace context remove prod"))
@click.argument("name")
def remove_context(name: str) -> None:
    """Forget a context; files that it names stay."""
    saved = _read()
    known_context(saved, name)
    left = {each: fields for each, fields in saved.contexts.items() if each != name}
    _write(SavedContexts(left, "" if saved.current == name else saved.current))
    click.echo(f"context {escape(name)} removed")


def _read() -> SavedContexts:
    return read_contexts(contexts_file(os.environ))


def _write(saved: SavedContexts) -> None:
    path = contexts_file(os.environ)
    try:
        write_contexts(path, saved)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def _path(key: str, value: str) -> str:
    """Files are kept by their whole path: commands run in other directories."""
    is_file = key in ("password_file", "token_file") or (key == "tls_ca" and value != "system")
    return os.path.abspath(value) if is_file else value
