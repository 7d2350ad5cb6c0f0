"""How a command ends: its exit code, and one line on stderr that says why it failed.

Every error that a command lets through meets this one table. What is not in it is a bug, and shows its
traceback.

    0 ok    1 error    2 usage    3 not found    4 refused    5 timeout    6 data missing
    130 stopped by Ctrl-C
"""

from __future__ import annotations

import enum
import sys

import rich_click as click

from tailrace.client.error import DataMissing, LoginNeeded
from tailrace.model import ConfigError, OffsetOutOfRange, TailraceError, escape


class ExitCode(enum.IntEnum):
    """What scripts may rely on."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    TIMEOUT = 5
    DATA_MISSING = 6  # records were deleted before they were copied
    INTERRUPTED = 130  # 128 + SIGINT, as a shell counts


class CommandFailed(TailraceError):
    """The command did its work and the answer is bad, or there was nothing to work on."""

    def __init__(self, message: str, *, exit_code: ExitCode = ExitCode.ERROR) -> None:
        super().__init__(message)
        self.exit_code = exit_code


_SHOWN_MAX = 60

Failure = TailraceError | click.ClickException | OSError | UnicodeEncodeError
"""What a command may let through: our errors, click's, the operating system's (timeouts among them), and a
name on the command line that is no text."""


def report_failure(error: Failure) -> ExitCode:
    """Say on stderr what went wrong, in one line, and return the code to exit with."""
    print(f"error: {escape(_message(error))}", file=sys.stderr)
    return exit_code_of(error)


def exit_code_of(error: Failure) -> ExitCode:
    match error:
        case CommandFailed():
            return error.exit_code
        case click.UsageError() | ConfigError() | UnicodeEncodeError():
            return ExitCode.USAGE
        case FileNotFoundError() | OffsetOutOfRange():
            return ExitCode.NOT_FOUND
        case PermissionError() | LoginNeeded():
            return ExitCode.AUTH
        case TailraceError() if isinstance(error.__cause__, LoginNeeded):  # and it was tried again in vain
            return ExitCode.AUTH
        case TimeoutError():
            return ExitCode.TIMEOUT
        case DataMissing():
            return ExitCode.DATA_MISSING
        case _:
            return ExitCode.ERROR


def _message(error: Failure) -> str:
    match error:
        case click.UsageError():
            return _sentence(error.format_message()) + (
                f" Try: {error.ctx.command_path} --help" if error.ctx else ""
            )
        case click.ClickException():
            return error.format_message()
        case OSError(strerror=str(reason), filename=filename) if filename is not None:
            return f"{reason}: {filename}"
        case OSError(strerror=str(reason)):
            return reason
        case TimeoutError():
            return str(error) or "timed out"
        case UnicodeEncodeError():
            return f"{error.object[:_SHOWN_MAX]!a} is not UTF-8, and names are"
        case _:
            return str(error) or type(error).__name__


def _sentence(text: str) -> str:
    """With a full stop, unless it ends by itself: something follows."""
    return text if text.endswith((".", "?", "!")) else f"{text}."
