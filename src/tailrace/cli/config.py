"""`tailrace config`: shows what `tailrace.server` would obey, and where each value comes from."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Column, Output, examples, output_option

if TYPE_CHECKING:
    from tailrace.server.configuration import Configuration

Command = TypeVar("Command", bound=Callable[..., Any])


def config_option(command: Command) -> Command:
    """Give a command `--config FILE`; it receives a path or None as its parameter `config_file`."""
    return click.option(
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        show_default="$TAILRACE_CONFIG, else tailrace.toml if it is here",
        help="The configuration file.",
    )(command)


@click.group(name="config", no_args_is_help=True)
def command() -> None:
    """Show settings, what they mean, and where they come from."""


@command.command(
    name="show",
    epilog=examples(
        "tailrace config show",
        "tailrace config show --changed",
        "tailrace config show --config production.toml -o json",
    ),
)
@config_option
@click.option("--changed", is_flag=True, help="Only what differs from a plain `tailrace up`.")
@output_option
def show(config_file: Path | None, changed: bool, output: Output) -> None:
    """List every setting with the value in force and its source."""
    from tailrace.server.explanation import list_values

    columns = [Column("key"), Column("value", show=_word), Column("source")]
    output.rows(list_values(_read(config_file), changed_only=changed), columns=columns)


@command.command(
    name="explain",
    epilog=examples("tailrace config explain storage.fsync", "tailrace config explain retention.ms -o json"),
)
@click.argument("key")
@config_option
@output_option
def explain_key(key: str, config_file: Path | None, output: Output) -> None:
    """Tell meaning, default, value and source of one setting."""
    from tailrace.server.explanation import explain, explain_listener_key, find_setting
    from tailrace.server.setting import settings
    from tailrace.server.source import suggest

    columns = [Column(name, show=_word) for name in _EXPLAINED]
    if found := explain_listener_key(key, _read(config_file)):
        output.record(found, columns=columns)
        return
    setting = find_setting(key)
    if setting is None:
        problem = f"{key} is not a setting{suggest(key, settings())}"
        raise CommandFailed(problem, exit_code=ExitCode.NOT_FOUND)
    output.record(explain(setting, _read(config_file)), columns=columns)


@command.command(name="validate", epilog=examples("tailrace config validate tailrace.toml"))
@click.argument("file", type=click.Path(path_type=Path))
@output_option
def validate(file: Path, output: Output) -> None:
    """Check a configuration file; exit code 1 if something is wrong with it."""
    from tailrace.server.configuration import check_file

    if not file.exists():
        raise FileNotFoundError(2, "No such file or directory", str(file))
    problems = check_file(file)
    if output.format == "json":
        output.record({"file": str(file), "valid": not problems, "problems": problems})
    elif output.format == "jsonl":
        output.rows([{"problem": problem} for problem in problems], columns=())
    else:
        for problem in problems or [f"{file} is valid"]:
            click.echo(problem)
    if count := len(problems):
        raise CommandFailed(f"{count} problem{'s' if count > 1 else ''} in {file}")


_EXPLAINED = ("key", "meaning", "type", "default", "value", "source", "flag", "environment", "aliases")


def _read(config_file: Path | None) -> Configuration:
    from tailrace.server.configuration import read_config

    return read_config(environment=os.environ, file=config_file)


def _word(value: object) -> str:
    """As it would be written into the file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, list) else str(value)
