"""What a run of `tailrace bench spark` found, and the goals it is held against.

The fields of the report are the keys of its JSON: scripts read them, so they stay, and what could not be
measured is null, with the reason under `missing`. A figure is the median of its rounds. Goals are ratios of
our figures to those of Spark's own Kafka source in the same run, but for the codec and the memory, which have
nobody beside them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from tailrace.bench.broker_report import INTERRUPTED, process_line
from tailrace.bench.machine import describe_machine
from tailrace.bench.report import Goal, Verdict
from tailrace.bench.spark.filling import BATCH_BYTES
from tailrace.bench.spark.load import OURS, THEIRS
from tailrace.bench.spark.memory import Peak
from tailrace.bench.spark.run import KINDS, Kind, SparkPlan, SparkRun
from tailrace.bench.wire.subject import Subject

_MB = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """One load: every round of either side, in the order in which they ran."""

    name: str
    title: str
    unit: str
    tailrace: Sequence[float]
    kafka: Sequence[float]  # Spark's own source

    @property
    def ours(self) -> float | None:
        return median(self.tailrace) if self.tailrace else None

    @property
    def theirs(self) -> float | None:
        return median(self.kafka) if self.kafka else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkReport:
    """The figures of one run."""

    broker: Mapping[str, object]
    settings: Mapping[str, object]
    loads: Sequence[LoadFigures]
    codec: Mapping[str, int | None]
    """Records per second: decode and encode, compiled and pure."""
    memory: Mapping[str, float | None]
    """Of the archive's Python workers in MB, at most: the largest, with a short and a long backlog."""
    missing: Mapping[str, str]
    stopped: str | None
    machine: Mapping[str, object]

    def as_row(self) -> dict[str, object]:
        row = asdict(self)
        row["medians"] = {each.name: {OURS: each.ours, THEIRS: each.theirs} for each in self.loads}
        row["goals"] = [
            {"goal": each.goal.key, "text": each.goal.text, "limit": each.goal.limit}
            | {"at_most": each.goal.at_most, "value": each.value, "met": each.met}
            for each in judge(self)
        ]
        return row

    def lines(self) -> dict[str, object]:
        """The broker and the settings as a person reads them."""
        given = self.settings
        return {
            "broker": self.broker["address"],
            "runs as": process_line(self.broker["processes"]),
            "topic": f"{given['records']:,} records of {given['value_bytes']} bytes in {given['partitions']}"
            f" partitions, batches of {given['batch_bytes']} bytes",
            "spark": f"{given['spark']}, {given['master']}",
            "beside": f"spark-sql-kafka {given['connector']}" if given["connector"] else "nobody",
            "rounds": given["rounds"],
        }

    def rows(self) -> list[dict[str, object]]:
        """The figures as a table: the loads, then the codec and the memory, which have nobody beside them."""
        rows = [_row(each) for each in self.loads if each.ours is not None or each.theirs is not None]
        alone: list[tuple[str, float | None, str]] = [
            (name.replace("_", ", "), value, "records/s") for name, value in self.codec.items()
        ]
        alone += [
            ("archive's largest worker, short backlog", self.memory["short_backlog_mb"], "MB"),
            ("archive's largest worker, long backlog", self.memory["long_backlog_mb"], "MB"),
        ]
        return rows + [
            {"load": title, OURS: write_rate(value, unit), "spark-sql-kafka": "", "ratio": "", "unit": unit}
            for title, value, unit in alone
            if value is not None
        ]

    def notes(self) -> list[str]:
        """What a reader should know before believing the figures."""
        return [f"Not measured, {what}: {why}" for what, why in self.missing.items()]

    def load(self, name: str) -> LoadFigures | None:
        return next((each for each in self.loads if each.name == name), None)


# ---- goals


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ratio:
    """A goal of two figures, ours over theirs."""

    goal: Goal
    ours: str
    theirs: str

    def value_in(self, report: SparkReport) -> float | None:
        ours, theirs = report.load(self.ours), report.load(self.theirs)
        if ours is None or theirs is None or ours.ours is None or not theirs.theirs:
            return None
        return ours.ours / theirs.theirs


_RATIOS = (
    _Ratio(
        goal=Goal(key="noop_ratio", text="read to noop, against Spark's Kafka source", limit=2.0),
        ours="noop",
        theirs="noop",
    ),
    _Ratio(
        goal=Goal(key="archive_ratio", text="archive, against Spark's Kafka source to Parquet", limit=1.5),
        ours="archive",
        theirs="parquet",
    ),
    _Ratio(
        goal=Goal(
            key="cold_ratio", text="first read of a cold session, time against its", limit=1.0, at_most=True
        ),
        ours="cold",
        theirs="cold",
    ),
)
_DECODE = (
    Goal(key="decode_compiled", text="decode, records/s, compiled", limit=5_000_000),
    Goal(key="decode_pure", text="decode, records/s, pure", limit=1_500_000),
)
_MEMORY = Goal(
    key="memory_ratio", text="archive's memory, four times the backlog against once", limit=1.5, at_most=True
)
GOALS = (*(each.goal for each in _RATIOS), *_DECODE, _MEMORY)


def judge(report: SparkReport) -> Iterator[Verdict]:
    """Every goal with its figure."""
    for ratio in _RATIOS:
        yield _verdict(ratio.goal, ratio.value_in(report))
    for goal in _DECODE:
        yield _verdict(goal, report.codec[goal.key])
    short, long = report.memory["short_backlog_mb"], report.memory["long_backlog_mb"]
    yield _verdict(_MEMORY, long / short if short and long else None)


def _verdict(goal: Goal, value: float | None) -> Verdict:
    return Verdict(goal=goal, value=value, met=None if value is None else goal.is_met(value))


# ---- from a run


def spark_report_of(subject: Subject, plan: SparkPlan, run: SparkRun, *, place: Path) -> SparkReport:
    """The report of a run, from this machine."""
    return SparkReport(
        broker=subject.facts(),
        settings={
            "records": plan.records,
            "value_bytes": plan.value_bytes,
            "batch_bytes": BATCH_BYTES,
            "partitions": plan.partitions,
            "rounds": plan.rounds,
            "quick": plan.quick,
            "master": plan.master,
            "spark": run.spark_version,
            "connector": run.connector,
        },
        loads=[_figures(kind, run) for kind in KINDS],
        codec=_codec(run),
        memory={
            "short_backlog_mb": _mb(run.short_backlog),
            "long_backlog_mb": _mb(run.long_backlog),
            "long_backlog_all_mb": None
            if not run.long_backlog
            else round(run.long_backlog.total_bytes / _MB, 1),
        },
        missing=dict(run.missing),
        stopped=INTERRUPTED if run.interrupted else run.failure,
        machine={**describe_machine(place), "pyarrow": _version("pyarrow"), "load_average": _load_average()},
    )


def _figures(kind: Kind, run: SparkRun) -> LoadFigures:
    return LoadFigures(
        name=kind.name,
        title=kind.title,
        unit=kind.unit,
        tailrace=run.values(kind.name, OURS),
        kafka=run.values(kind.name, THEIRS),
    )


def _codec(run: SparkRun) -> dict[str, int | None]:
    found: dict[str, int | None] = dict.fromkeys(
        ("decode_compiled", "decode_pure", "encode_compiled", "encode_pure")
    )
    for rates in run.codec:
        twin = "compiled" if rates.accelerated else "pure"
        found[f"decode_{twin}"], found[f"encode_{twin}"] = rates.decode_per_s, rates.encode_per_s
    return found


def _mb(peak: Peak | None) -> float | None:
    return round(peak.worker_bytes / _MB, 1) if peak and peak.worker_bytes else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _load_average() -> float | None:
    """Of the last minute, when it was over: other work would show here."""
    return round(os.getloadavg()[0], 2) if platform.system() != "Windows" else None


def write_rate(value: float | None, unit: str) -> str:
    """A figure as a person reads it."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if unit == "ms" else f"{value:.2f}"


def _row(load: LoadFigures) -> dict[str, object]:
    return {
        "load": load.title,
        OURS: write_rate(load.ours, load.unit),
        "spark-sql-kafka": write_rate(load.theirs, load.unit),
        "ratio": write_rate(ratio_of(load), "x"),
        "unit": load.unit,
    }


def ratio_of(load: LoadFigures) -> float | None:
    """Ours over theirs, whichever is better; None without both."""
    return None if load.ours is None or not load.theirs else load.ours / load.theirs
