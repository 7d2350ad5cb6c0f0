"""What runs in a Python worker before it is known whether Tailrace is there.

Spark hands functions of installed packages to workers by name. A worker without the package fails on the
name, and Spark repeats the task, though no repetition installs a package. The functions of this module travel
with their code (see `send_by_value`), so that a worker answers with the reason instead. They use nothing but
the standard library, and pyarrow where Spark itself needs it.
"""

from __future__ import annotations

import json
import pickle
import platform
import socket
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

MISSING = "ModuleNotFoundError"


def send_by_value() -> None:
    """From now on pyspark sends the functions of this module with their code."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def probe(modules: Iterable[str], _rows: Iterable[object]) -> Iterator[dict[str, str]]:
    """Where this worker runs, on which Python, with which Tailrace, and which import fails."""
    found = {"host": socket.gethostname(), "python": sys.executable, "version": platform.python_version()}
    try:
        for name in modules:
            import_module(name)
        found["tailrace"] = str(import_module("tailrace").__version__)
    except ImportError as error:
        found["error"] = str(error)
    yield found


def run_pickled(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Run a pickled function on a worker's batches; without its package, each task has the reason as outcome.

    The rows are those of spread.py: the number of a task, and its outcome as JSON.
    """
    try:
        run = pickle.loads(pickled)
    except ImportError as error:
        reason = str(error)
    else:
        yield from run(batches)
        return
    import pyarrow as pa

    host = socket.gethostname()
    message = f"{reason} ({sys.executable} on {host})"
    failure = {"kind": MISSING, "message": message, "retriable": False}
    for batch in batches:
        numbers = batch.column(0).cast(pa.int32())
        outcomes = pa.array([json.dumps({"failure": failure}).encode()] * len(numbers), pa.binary())
        yield pa.RecordBatch.from_arrays([numbers, outcomes], names=["task", "outcome"])
