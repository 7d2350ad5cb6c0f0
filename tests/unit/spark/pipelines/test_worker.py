"""A worker without a package: what it answers in an interpreter without Tailrace, what the driver says."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tailrace import __version__
from tailrace.model import ConfigError
from tailrace.spark.pipelines import worker, worker_check
from tailrace.spark.pipelines.ship import NOT_SHIPPED, OPTIONAL, REQUIRED, pack
from tailrace.spark.pipelines.spread import TaskFailed, spread
from tailrace.spark.pipelines.worker_check import WORKER_MODULES, _wait_steady, plan_refusal

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")

GOOD = {"host": "w1", "python": "/p", "version": "3.11.7", "tailrace": __version__}


def refuse_tailrace() -> str:
    """The beginning of a program in whose interpreter there is no Tailrace."""
    return (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'tailrace':\n"
        "            raise ModuleNotFoundError(f\"No module named '{name}'\")\n"
        "sys.meta_path.insert(0, Absent())\n"
    )


def in_a_worker(function: Any, code: str, tmp_path: Path) -> str:
    """What a program prints that has the function as `run`, as Spark sends it, and no Tailrace."""
    from pyspark import cloudpickle

    worker.send_by_value()
    file = tmp_path / "function"
    file.write_bytes(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
    program = f"{refuse_tailrace()}import pickle\nrun = pickle.load(open({str(file)!r}, 'rb'))\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_worker_without_tailrace_names_it(tmp_path: Path) -> None:
    printed = in_a_worker(partial(worker.probe, WORKER_MODULES), "print(*run([]))", tmp_path)
    assert "'error': \"No module named 'tailrace'\"" in printed
    assert sys.executable in printed


def test_a_worker_with_all_of_it_has_its_version() -> None:
    (found,) = worker.probe(WORKER_MODULES, [])
    assert found["tailrace"] == __version__
    assert "error" not in found


def answer(tmp_path: Path) -> dict[str, Any]:
    """The row that a worker without Tailrace gives for task 1."""
    task = partial(worker.run_pickled, pickle.dumps(plan_refusal))  # a function of Tailrace, whichever
    code = (
        "import pyarrow as pa\n"
        "batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int64())], names=['id'])\n"
        "print(next(run(iter([batch]))).to_pylist()[0])"
    )
    row: dict[str, Any] = eval(in_a_worker(task, code, tmp_path))
    return row


def test_a_task_without_its_package_is_an_outcome_and_no_exception(tmp_path: Path) -> None:
    row = answer(tmp_path)
    assert row["task"] == 1
    assert b"No module named 'tailrace'" in row["outcome"]


def test_such_an_outcome_is_one_attempt_and_names_the_fix(tmp_path: Path) -> None:
    row = {**answer(tmp_path), "task": 0}

    class Lacking:
        """A session whose only worker has no Tailrace."""

        jobs = 0

        def range(self, *_: int) -> Lacking:
            return self

        def mapInArrow(self, *_: object) -> Lacking:
            return self

        def collect(self) -> list[Any]:
            self.jobs += 1
            return [type("Row", (), row)]

    session: Any = Lacking()
    with pytest.raises(TaskFailed, match="Run with --ship to send Tailrace to the workers") as error:
        spread(session, abs, [1], result=int)
    assert not error.value.retriable
    assert session.jobs == 1


# ---- what the driver says to it


def test_workers_that_have_everything_are_accepted() -> None:
    plan_refusal([GOOD, GOOD])


@pytest.mark.parametrize(
    ("worker_says", "said"),
    [
        (
            {"error": "No module named 'tailrace'"},
            "No module named 'tailrace' in /p .* on w1. Run with --ship",
        ),
        ({"error": "No module named 'pyarrow'"}, "pip install pyarrow.*--ship does not send it"),
        ({"tailrace": "0.0.1"}, f"have Tailrace 0.0.1 and this is {__version__}.*--ship"),
    ],
)
def test_a_worker_that_will_not_do_is_named_with_the_fix(worker_says: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_refusal([GOOD, {**GOOD, **worker_says}])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[PYTHON_VERSION_MISMATCH] 3.9 and 3.11", "another Python.*PYSPARK_PYTHON"),
        ('Cannot run program "python3.99": error=2', "do not have this Python.*PYSPARK_PYTHON"),
        ("Job aborted", "do not answer: Job aborted"),
    ],
)
def test_what_spark_says_of_workers_gets_its_fix(text: str, said: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(ConfigError, match=said):
        raise ConfigError(worker_check._explain(PySparkException(text)))


def test_executors_that_come_a_moment_later_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_check, "_STEADY_S", 0.2)
    counts = iter([2, 2, 4])
    assert _wait_steady(lambda: next(counts, 4)) == 4


# ---- what is shipped


def test_all_that_workers_import_is_shipped_or_needed_there() -> None:
    code = (
        "import sys, pyspark.sql, pyspark.sql.datasource, pandas, pyarrow\n"
        "before = set(sys.modules)\n"
        f"for name in {(*WORKER_MODULES, 'tailrace.client.kafka', 'tailrace.client.loop_thread')}:\n"
        "    __import__(name)\n"
        "after = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "files = {name for name in after if getattr(sys.modules.get(name), '__file__', None)}\n"
        "print(*(files - set(sys.stdlib_module_names)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    brought = {"pyspark", "py4j", "typing_extensions"}  # the last by pyspark, or not needed without it
    assert set(done.stdout.split()) - brought <= {*REQUIRED, *OPTIONAL, *NOT_SHIPPED}


def test_a_python_with_nothing_but_what_was_shipped_imports_it(tmp_path: Path) -> None:
    import tarfile

    executor = tmp_path / "executor"
    for each in pack(tmp_path / "ship"):
        archive, _, name = each.partition("#")
        with tarfile.open(archive) as packed:
            packed.extractall(executor / name, filter="data")
    assert not list(executor.rglob("__pycache__"))
    code = (
        "import sys; sys.path.insert(0, '.'); import tailrace, msgspec, cramjam, tailrace.client.kafka\n"
        "print(tailrace.__file__, msgspec.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=executor, env={}, capture_output=True, text=True, check=True
    )
    assert [Path(each).is_relative_to(executor) for each in done.stdout.split()] == [True, True]
