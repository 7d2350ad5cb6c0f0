"""Every load of `tailrace bench spark`, against one broker that already runs.

Three topics of our own are filled first and deleted at the end whatever happens: the one that is measured, a
quarter of it for warming up and for the memory of a short backlog, and a few records for the first read. In
every round each format runs each load once, and who goes first changes with the round. A load that fails is
noted and the others go on; Ctrl-C ends the run and keeps what was found.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.bench.spark import load
from tailrace.bench.spark.codec import CodecRates, measure_twin
from tailrace.bench.spark.cold import ColdRead, measure_cold
from tailrace.bench.spark.connector import Connector, NoConnector, add_connector, find_connector
from tailrace.bench.spark.filling import VALUE_BYTES, fill_topic
from tailrace.bench.spark.holding import measure_holding
from tailrace.bench.spark.load import OURS, THEIRS, Load, Scene
from tailrace.bench.spark.memory import Peak
from tailrace.bench.spark.micro_batch import measure_trigger_ms
from tailrace.bench.wire.reader import LoadError
from tailrace.bench.wire.subject import Subject, create_topic, delete_topic
from tailrace.model import TailraceError
from tailrace.spark.pipelines.session import check_spark, open_session
from tailrace.spark.pipelines.spark_settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FULL_RECORDS, QUICK_RECORDS = 4_000_000, 400_000
MASTER = "local[2]"
COLD_RECORDS = 10_000
_SHORT = 4  # the short backlog is the topic's, divided by this

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPlan:
    """How much, and how thoroughly."""

    records: int = FULL_RECORDS
    rounds: int = 5
    cold_rounds: int = 3
    triggers: int = 30
    codec_s: float = 3.0
    partitions: int = 2
    value_bytes: int = VALUE_BYTES
    master: str = MASTER
    quick: bool = False

    def steps(self) -> int:
        """What a progress bar counts, at most."""
        return 6 + self.rounds * (len(RATES) + 1) + self.cold_rounds


FULL = SparkPlan()
QUICK = SparkPlan(records=QUICK_RECORDS, rounds=2, cold_rounds=1, triggers=10, codec_s=1.0, quick=True)


def plan_of(*, quick: bool, records: int | None, rounds: int | None, master: str | None) -> SparkPlan:
    """The plan that a command line asks for."""
    plan = QUICK if quick else FULL
    return replace(
        plan,
        records=records or plan.records,
        rounds=rounds or plan.rounds,
        master=master or plan.master,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One load: its name, what it is, and who runs it."""

    name: str
    title: str
    unit: str = "rows/s"
    forms: Sequence[str] = (OURS, THEIRS)

    @property
    def less_is_better(self) -> bool:
        return self.unit != "rows/s"


NOOP = Kind(name="noop", title="topic to noop")
PARQUET = Kind(name="parquet", title="topic to Parquet, by Spark's writer")
ARCHIVE = Kind(name="archive", title="topic to lake, by the archive pipeline", forms=(OURS,))
STREAM = Kind(name="stream", title="topic to noop, streaming, AvailableNow")
COPY = Kind(name="copy", title="topic to topic")
TRIGGER = Kind(name="trigger", title="micro-batch of 1,000 records, p50", unit="ms")
COLD = Kind(name="cold", title="first read of a cold session, 10,000 records", unit="s")
KINDS = (NOOP, PARQUET, ARCHIVE, STREAM, COPY, TRIGGER, COLD)

RATES: Mapping[Kind, Load] = {
    NOOP: load.to_noop,
    PARQUET: load.to_parquet,
    ARCHIVE: load.to_lake,
    STREAM: load.stream_to_noop,
    COPY: load.to_topic,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One figure of one round."""

    load: str
    form: str
    value: float


@dataclass(slots=True)
class SparkRun:
    """What a run has found, however it ended."""

    samples: list[Sample] = field(default_factory=list)
    codec: list[CodecRates] = field(default_factory=list)
    short_backlog: Peak | None = None
    long_backlog: Peak | None = None
    connector: str | None = None
    spark_version: str = ""
    missing: dict[str, str] = field(default_factory=dict)  # what was not measured, and why
    failure: str | None = None
    interrupted: bool = False
    topics_left: list[str] = field(default_factory=list)

    def values(self, name: str, form: str) -> list[float]:
        return [each.value for each in self.samples if (each.load, each.form) == (name, form)]


def run_spark_bench(
    subject: Subject, plan: SparkPlan, *, place: Path, note: Note = lambda _title: None
) -> SparkRun:
    """Everything in turn; ConfigError if this machine cannot run Spark. `place` is left as it was."""
    run = SparkRun(spark_version=check_spark())
    connector = _connector(run, note)
    topics = _Topics(subject=subject, plan=plan)
    try:
        with (
            topics.filled(run, note),
            tempfile.TemporaryDirectory(prefix="tailrace-bench-", dir=place) as made,
        ):
            _measure_codec(run, plan, note)
            _measure_warm(run, plan, topics, connector, place=Path(made), note=note)
            _measure_holding(run, plan, topics, note)
            _measure_cold(run, plan, topics, note)
    except KeyboardInterrupt:
        run.interrupted = True
    except (TailraceError, LoadError, OSError) as error:
        run.failure = str(error)
    return run


def _connector(run: SparkRun, note: Note) -> Connector | None:
    note("looking for Spark's own Kafka source")
    try:
        found = find_connector(run.spark_version)
    except NoConnector as error:
        run.missing[THEIRS] = str(error)
        return None
    run.connector = found.version
    return found


@dataclass(frozen=True, slots=True)
class _Topics:
    """Topics of one run."""

    subject: Subject
    plan: SparkPlan
    name: str = field(default_factory=lambda: f"tailrace-bench-{uuid.uuid4().hex[:12]}")

    @property
    def sizes(self) -> dict[str, int]:
        """Every topic, and how many records it has."""
        return {
            self.name: self.plan.records,
            self.short: max(self.plan.records // _SHORT, 1),
            self.few: min(COLD_RECORDS, self.plan.records),
        }

    @property
    def short(self) -> str:
        return f"{self.name}-short"

    @property
    def few(self) -> str:
        return f"{self.name}-few"

    @contextmanager
    def filled(self, run: SparkRun, note: Note) -> Iterator[None]:
        try:
            note(f"filling a topic with {self.plan.records:,} records")
            for topic, records in self.sizes.items():
                create_topic(self.subject, topic, partitions=self.plan.partitions)
                fill_topic(
                    self.subject.bootstrap,
                    topic,
                    partitions=self.plan.partitions,
                    records=records,
                    value_bytes=self.plan.value_bytes,
                )
            yield
        finally:
            for topic in (*self.sizes, f"{self.name}-copy"):
                if not delete_topic(self.subject, topic):
                    run.topics_left.append(topic)

    def scene(self, spark: SparkSession, topic: str, place: Path) -> Scene:
        return Scene(
            spark=spark,
            subject=self.subject,
            topic=topic,
            partitions=self.plan.partitions,
            records=self.sizes[topic],
            place=place,
        )


# ---- the parts


def _measure_codec(run: SparkRun, plan: SparkPlan, note: Note) -> None:
    note("codec")
    for pure in (False, True):
        rates = measure_twin(pure=pure, seconds=plan.codec_s)
        if rates is not None:
            run.codec.append(rates)


def _measure_warm(
    run: SparkRun, plan: SparkPlan, topics: _Topics, connector: Connector | None, *, place: Path, note: Note
) -> None:
    """All that one session can measure."""
    note(f"starting Spark {run.spark_version}")
    with open_session(SparkSettings(master=plan.master), name="tailrace bench spark") as spark:
        if connector is not None:
            add_connector(spark, connector)
        forms = (OURS,) if connector is None else (OURS, THEIRS)
        scene = topics.scene(spark, topics.name, place)
        note("warming up")
        _warm_up(run, replace(scene, topic=topics.short, records=topics.sizes[topics.short]), forms)
        for number in range(plan.rounds):
            for kind in (*RATES, TRIGGER):
                note(f"{kind.title}, round {number + 1} of {plan.rounds}")
                for form in _order(kind, forms, number):
                    _try(run, kind, form, partial(_measure_one, scene, plan, kind, form))


def _order(kind: Kind, forms: Sequence[str], number: int) -> list[str]:
    """Who runs it, beginning with another one in every round."""
    able = [form for form in kind.forms if form in forms]
    return able if number % 2 == 0 else able[::-1]


def _warm_up(run: SparkRun, scene: Scene, forms: Sequence[str]) -> None:
    """Once each, uncounted; what fails here fails again where it counts."""
    for form in forms:
        _guard(run, f"warming up {form}", partial(load.count, scene, form))
        for kind, work in RATES.items():
            if form in kind.forms:
                _guard(run, f"warming up {kind.name} {form}", partial(work, scene, form))


def _measure_one(scene: Scene, plan: SparkPlan, kind: Kind, form: str) -> float:
    if kind is TRIGGER:
        return measure_trigger_ms(scene, form, batches=plan.triggers)
    return scene.records / RATES[kind](scene, form)


def _try(run: SparkRun, kind: Kind, form: str, work: Callable[[], float]) -> None:
    value = _guard(run, f"{kind.name} {form}", work)
    if value is not None:
        run.samples.append(Sample(load=kind.name, form=form, value=value))


def _guard(run: SparkRun, what: str, work: Callable[[], float]) -> float | None:
    """What the work returns; what went wrong is noted, for the report."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return work()
    except (LoadError, TailraceError, OSError, PySparkException, Py4JError) as error:
        run.missing[what] = str(error).strip().partition("\n")[0]
        return None


def _measure_holding(run: SparkRun, plan: SparkPlan, topics: _Topics, note: Note) -> None:
    note("memory of the archive's workers")
    try:
        run.short_backlog, run.long_backlog = measure_holding(
            topics.subject.bootstrap, [topics.short, topics.name], master=plan.master
        )
    except TailraceError as error:
        run.missing["memory"] = str(error)


def _measure_cold(run: SparkRun, plan: SparkPlan, topics: _Topics, note: Note) -> None:
    forms = (OURS,) if run.connector is None else (OURS, THEIRS)
    for number in range(plan.cold_rounds):
        note(f"{COLD.title}, round {number + 1} of {plan.cold_rounds}")
        for form in _order(COLD, forms, number):
            read = ColdRead(
                form=form,
                bootstrap=topics.subject.bootstrap,
                topic=topics.few,
                master=plan.master,
                records=topics.sizes[topics.few],
                connector_for=run.spark_version if run.connector else "",
            )
            _try(run, COLD, form, partial(_first_s, read))


def _first_s(read: ColdRead) -> float:
    return measure_cold(read).first_s
