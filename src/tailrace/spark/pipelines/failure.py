"""Why a run on Spark failed, in the words of the part that failed, without the JVM's forty lines.

What fails in a Python worker comes to the driver as text: the worker's traceback inside the message of a JVM
exception, perhaps several times, perhaps inside that of a streaming query. The last line of that traceback is
the error that was raised there, and it is all that a person needs.
"""

from __future__ import annotations

import re

from tailrace.model import TailraceError

_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*))?$")
_JVM = re.compile(r"^\s+at |^\t\.\.\. \d+ more|^Caused by: |^(JVM stacktrace|Driver stacktrace):|^SQLSTATE: ")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+\s*$")
_OURS = "tailrace."
_MISSING = re.compile(r"No module named '[\w.]+'")
_LASTING = re.compile(
    r"No module named '|cannot import name|Can't get (local )?attribute|PicklingError"
    r"|PYTHON_VERSION_MISMATCH|Cannot run program"
)
_LATE = re.compile(
    r"Timed out while waiting for the Python worker|Python worker failed to connect back"
    # Spark looks for data sources once in a session, in a Python of its own, and takes its failure for none.
    r"|Failed to find the data source: tailrace"
)
INSTALL_ON_WORKERS = (
    "Run with --ship to send Tailrace to the workers, or install it there (pip install 'tailrace[spark]') "
    "and name that Python with PYSPARK_PYTHON"
)
_LINES_MAX = 6


def is_spark_error(error: BaseException) -> bool:
    """Whether it came out of Spark: pyspark's, py4j's or gRPC's, whichever of them is here."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "grpc")


def is_lasting(text: str) -> bool:
    """Whether Spark's words name what is the same at the next attempt: what the workers have installed."""
    return _LASTING.search(text) is not None


def raised_in(text: str) -> str:
    """The class of the error at the end of the last traceback in a text, with its module; "" without one."""
    _, found, rest = text.rpartition(_TRACEBACK)
    raised = [match[1] for line in rest.splitlines() if (match := _RAISED.match(line))] if found else []
    return raised[0] if raised else ""


def is_late_worker(error: BaseException) -> bool:
    """Whether a Python of Spark did not start within Spark's 10 s, as on a machine that is busy."""
    return _LATE.search(str(error)) is not None


def lacking(reason: str) -> str:
    """The reason, with the fix, where a worker lacks a package that is on the driver's machine."""
    return f"a Python worker of Spark lacks a package: {reason}. {INSTALL_ON_WORKERS}"


def cause_of(error: BaseException) -> str:
    """What went wrong, for a person."""
    if isinstance(error, TailraceError) or not is_spark_error(error):
        return str(error) or type(error).__name__
    text = str(error)
    cause = " ".join((_python_cause(text) or _spark_cause(text) or type(error).__name__).split())
    return lacking(cause) if _MISSING.search(cause) else cause


def _python_cause(text: str) -> str | None:
    """The error at the end of the last traceback in a text; its class only where it is not ours."""
    _, found, rest = text.rpartition(_TRACEBACK)
    if not found:
        return None
    lines = rest.splitlines()
    for number, line in enumerate(lines):
        raised = _RAISED.match(line)
        if raised is None:
            continue
        words = [raised[2] or "", *_until_jvm(lines[number + 1 :])]
        message = "\n".join(words).strip()
        ours = raised[1].startswith(_OURS) and message
        return message if ours else f"{raised[1]}: {message}".removesuffix(": ")
    return None


def _spark_cause(text: str) -> str:
    """The first words of what Spark itself says, without the names it has for it."""
    lines = _until_jvm(text.strip().splitlines())
    first = "\n".join(lines).strip()
    return _SQLSTATE.sub("", _CONDITION.sub("", first))


def _until_jvm(lines: list[str]) -> list[str]:
    kept: list[str] = []
    for line in lines[:_LINES_MAX]:
        if _JVM.match(line):
            break
        kept.append(line)
    while kept and not kept[-1].strip():
        kept.pop()
    return kept
