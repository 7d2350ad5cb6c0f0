"""The root of `tailrace`: finds the noun, runs it, and turns the way it ended into an exit code.

NOUNS is the registry. A noun is a module `tailrace.cli.<noun>` that offers `command`, with `_` where the noun
has `-`; it is imported when that noun is run, completed or asked for help. The line of help that the root
shows stands here, so that `tailrace --help` imports none of them. ALIASES are further words for what the
nouns do, and are shown below them.
"""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, TextIO

import rich_click as click

from tailrace import __version__
from tailrace.cli.exit import ExitCode, report_failure
from tailrace.cli.output import examples
from tailrace.model import TailraceError, escape
from tailrace.server.variable import warn_unknown

NOUNS: Mapping[str, str] = {
    "up": "Run a broker in the foreground.",
    "produce": "Send records to a topic.",
    "tail": "Show a topic's records, and follow it.",
    "topic": "List, describe, create, change, empty and delete topics.",
    "group": "List, describe, reset and delete consumer groups.",
    "txn": "List, describe and abort transactions.",
    "subscription": "Create, join, replay, redrive and look at subscriptions.",
    "inspect": "Show topics and their subscriptions in one view.",
    "replay": "Show past messages of a topic, or deliver them again.",
    "pipeline": "Run pipelines on Spark, see how far they are, and stop them.",
    "spark-env": "Print what lets notebooks and spark-submit start Spark faster.",
    "cert": "Make certificates, and a configuration that uses them.",
    "user": "Create, list, disable and delete the users that may log in.",
    "acl": "Say who may do what, by access control entries.",
    "context": "Save where brokers are and how to log in there.",
    "token": "Create, list and revoke API tokens.",
    "quota": "Set, list and remove quotas.",
    "audit": "Show who logged in, what was refused and what was changed.",
    "bench": "Measure a running broker, or the disk of this machine.",
    "config": "Show settings, what they mean, and where they come from.",
    "doctor": "Look for what keeps a broker from running well.",
    "log": "Look into a data directory, and check every byte of it.",
    "key": "Encrypt a data directory, and rotate its keys.",
    "storage": "Mend a data directory.",
    "cleanup": "Remove from PostgreSQL what no topic needs any more.",
    "backup": "Back up a running broker; list and check backups.",
    "restore": "Make a data directory out of a backup.",
    "export": "Write topics and subscriptions to a file.",
    "apply": "Make a broker have the topics and subscriptions of a file.",
}

ALIASES: Mapping[str, str] = {
    "create-topic": "Create a topic.",
    "create-subscription": "Create a subscription of a topic.",
    "publish": "Publish a message to a topic.",
    "join-subscription": "Join a subscription to receive messages.",
    "subscribe": "Receive a topic's messages.",
    "consume": "Pull and acknowledge a topic's messages.",
}
"""Words of the native listener that people bring with them."""

_EXAMPLES = examples(
    "tailrace up --demo",
    "tailrace doctor",
    "tailrace log inspect ./tailrace-data",
    "tailrace bench --quick",
)


class NounGroup(click.RichGroup):
    """A group whose commands are stand-ins with a line of help each, until one of them is really wanted."""

    def __init__(self, *, nouns: Mapping[str, str], package: str = "tailrace.cli", **settings: Any) -> None:
        super().__init__(**settings)
        for noun, text in nouns.items():
            self.add_command(click.RichCommand(name=noun, help=text))
        self.package = package

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, stand_in, rest = super().resolve_command(ctx, args)
        if name is None or stand_in is None:  # shell completion of something that does not exist
            return name, stand_in, rest
        command = import_module(f"{self.package}.{name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return name, command, rest


def build_root(
    nouns: Mapping[str, str], *, aliases: Mapping[str, str] | None = None, package: str = "tailrace.cli"
) -> NounGroup:
    """The root command over some nouns, whose modules are in `package`."""
    panels = [{"name": "Commands", "commands": list(nouns)}]
    if aliases:
        panels.append(
            {"name": "Plain words for topics, subscriptions and messages", "commands": list(aliases)}
        )
    root = NounGroup(
        name="tailrace",
        nouns={**nouns, **(aliases or {})},
        package=package,
        help="A message broker that speaks the Kafka wire protocol: run it, use it, look into it.",
        epilog=_EXAMPLES,
        callback=_warn_of_variables,
        no_args_is_help=True,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "rich_help_config": {"command_groups": {"tailrace": panels}},
        },
    )
    return click.version_option(__version__, prog_name="tailrace", message="%(prog)s %(version)s")(root)


def _warn_of_variables() -> None:
    """A misspelt variable has no effect on any command, so every command says so."""
    for warning in warn_unknown(os.environ):
        click.echo(f"warning: {escape(warning)}", err=True)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; the installed `tailrace` and `python -m tailrace` both end here."""
    return run(build_root(NOUNS, aliases=ALIASES), args)


def run(root: click.Command, args: Sequence[str] | None = None, *, program: str = "tailrace") -> int:
    """Run a command and return its exit code: what it returned if that is a number, else how it failed."""
    _prepare_streams()
    try:
        result = root.main(args, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except BrokenPipeError as error:
        return _end_broken_pipe(error)
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):  # of which click makes an exit with 1
            raise
        return _end_broken_pipe(ended.__context__)
    except (TailraceError, click.ClickException, OSError, UnicodeEncodeError) as error:
        return report_failure(error)
    return result if isinstance(result, int) else ExitCode.OK


def _end_broken_pipe(error: BrokenPipeError) -> ExitCode:
    """A reader of stdout that has seen enough (`| head`) is no failure: pipefail would end a script by it."""
    if not _is_unread(sys.stdout):
        return report_failure(error)
    # Python flushes stdout again at exit, and must not fail then.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.OK


def _is_unread(stream: TextIO) -> bool:
    """Whether the reader of a pipe has closed it; other pipes and sockets may break too."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _prepare_streams() -> None:
    """Output that cannot fail for what it says: a closed stream (`>&-`) swallows it, and a character that the
    terminal's encoding does not have is written out."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
