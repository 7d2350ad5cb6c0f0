"""`tailrace pipeline run`: what was asked for becomes configs, then a Spark runs them.

Everything that can be wrong without Spark is found before it starts: flags, tailrace.toml, a broker that does
not answer, a Java that is missing. The first Ctrl-C ends the runs after the batch under way, the second at
once; nothing is lost either way, the next run goes on where this one ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click
from click.core import ParameterSource

from tailrace.cli.alias import BOOTSTRAP_ALIASES, AliasedOption
from tailrace.cli.config import config_option
from tailrace.cli.connection import DEFAULT_BOOTSTRAP, Cluster
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.login import login_option
from tailrace.cli.output import Output, examples, output_option
from tailrace.cli.pipeline_flag import EXAMPLES, FLAGS, Flag, given_values, spell_of
from tailrace.client.error import DataMissing
from tailrace.model import ConfigError, TailraceError
from tailrace.spark import INSTALL_SPARK

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient
    from tailrace.server.configuration import Configuration
    from tailrace.spark.pipelines.declared import Declared
    from tailrace.spark.pipelines.runner import Outcome, Runner
    from tailrace.spark.pipelines.spark_settings import SparkSettings

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOPPING = "stopping after this batch; again ends at once"
_SUMMARIES = {
    "archive": "Keep topics in a lake: Parquet files, every record exactly once.",
    "replay": "Give the records of a lake back to a topic.",
    "sql": "Run a query over topics as streams.",
    "compact": "Rewrite a lake's small files, and drop what is past its time.",
    "report": "Write a page with plots about a lake.",
}
_NOTES = {
    "archive": "The lake is readable by Spark, DuckDB and pandas at any time, and complete up to the offsets "
    "that the run prints. It may be killed at any moment and run again.",
    "replay": "Keys, values, headers and timestamps are those of the lake. Run again, it adds nothing twice.",
    "sql": "Every topic is a view with key and value as text, topic, partition, offset, timestamp, "
    "timestampType, headers, and data: the value with its types, such as data.total. FROM STREAM orders goes "
    "on with what comes; FROM orders is what the topic holds now.",
    "compact": "An archive may go on meanwhile, and a reader of the table's log, or of the files that "
    "`tailrace pipeline files` prints, sees one version. A program that lists the folders of a parquet lake "
    "just then may see fewer rows, or miss a file it has listed.",
    "report": "Throughput, sizes, skew and the largest keys over time; with --bootstrap the lag as well.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where pipelines run, and what they are told beside their configs."""

    bootstrap: str | None
    master: str | None
    remote: str | None
    conf: tuple[str, ...]
    packages: tuple[str, ...]
    py_files: tuple[str, ...]
    archives: tuple[str, ...]
    ship: bool
    ui: bool
    config_file: Path | None
    spark_log: bool
    with_parent: bool
    output: Output


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that every run has; they arrive as one `place`."""

    def placed(**options: Any) -> Any:
        names = Place.__dataclass_fields__
        place = Place(**{name: options.pop(name) for name in names})
        return command(place=place, **options)

    placed.__doc__ = command.__doc__
    wrapped: Callable[..., Any] = placed
    for option in reversed(_PLACE_OPTIONS):
        wrapped = option(wrapped)
    return login_option(wrapped)


_PLACE_OPTIONS = (
    click.option(
        "-b",
        "--bootstrap",
        cls=AliasedOption,
        aliases=BOOTSTRAP_ALIASES,
        envvar="TAILRACE_BOOTSTRAP",
        show_envvar=True,
        show_default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT",
        help="A broker of the cluster; several with commas.",
    ),
    click.option(
        "--master",
        metavar="URL",
        show_default="local[*]",
        help="The Spark to run on, such as spark://HOST:7077.",
    ),
    click.option("--remote", metavar="URL", help="A Spark Connect server instead, such as sc://HOST."),
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.executor.memory=4g; may be repeated.",
    ),
    click.option(
        "--packages",
        multiple=True,
        metavar="GROUP:NAME:VERSION",
        help="Jars that Spark fetches with what they need; several with commas, or again.",
    ),
    click.option(
        "--py-files",
        multiple=True,
        metavar="FILE",
        help="Python files and zips for the workers; several with commas, or again.",
    ),
    click.option(
        "--archives",
        multiple=True,
        metavar="FILE[#NAME]",
        help="Archives that every executor unpacks, as NAME; several with commas, or again.",
    ),
    click.option(
        "--ship",
        is_flag=True,
        help="Send the installed Tailrace to the workers of a cluster. They need the same Python version and "
        "platform, with pyarrow, numpy and pandas.",
    ),
    click.option("--ui", is_flag=True, help="Open Spark's web UI, and show its address."),
    click.option("--spark-log", is_flag=True, help="Show what Spark says on stderr."),
    click.option("--with-parent", is_flag=True, hidden=True, help="Stop when stdin ends."),
    config_option,
    output_option,
)


class RunGroup(click.RichGroup):
    """The pipelines, and for any other word the pipeline that tailrace.toml declares by it."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or _declared_command(cmd_name)


@click.group(
    name="run",
    cls=RunGroup,
    invoke_without_command=True,
    epilog=examples(
        "tailrace pipeline run archive --topic orders --to ./lake --once",
        "tailrace pipeline run nightly        # [pipelines.nightly] of tailrace.toml",
        "tailrace pipeline run --all",
    ),
)
@click.option(
    "--all", "everything", is_flag=True, help="Run every pipeline that tailrace.toml declares, together."
)
@click.option("--once", is_flag=True, help="With --all: do what there is to do now, and end.")
@place_options
@click.pass_context
def command(context: click.Context, everything: bool, once: bool, place: Place) -> int | None:
    """Run a pipeline on Spark: one of those below, or one that tailrace.toml declares.

    The first run takes a while, because Spark starts. Ctrl-C, or `tailrace pipeline stop` from anywhere, ends
    a run after the batch under way.
    """
    if context.invoked_subcommand is not None:
        _refuse_options_in_front(context)
        return None
    if not everything:
        raise click.UsageError("name a pipeline, or say --all for those that tailrace.toml declares")
    return run_pipelines(lambda: _read_declared(place, once=once), place, restarts=True)


def _refuse_options_in_front(context: click.Context) -> None:
    """A flag before the pipeline's name would be this group's, and not heeded."""
    for parameter in context.command.params:
        assert parameter.name is not None
        if context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            name = context.invoked_subcommand
            raise click.UsageError(
                f"{parameter.opts[-1]} stands in front of {name}: put it behind, or say --all alone"
            )


# ---- one command for each pipeline


def _pipeline_command(kind: str, flags: Sequence[Flag]) -> click.Command:
    @place_options
    def run(*, place: Place, **options: Any) -> int:
        given = given_values(flags, options)
        is_declared = _is_declared(kind, given, place)
        return run_pipelines(lambda: [_make(kind, flags, given, place)], place, restarts=is_declared)

    return click.RichCommand(
        name=kind,
        callback=run,
        params=[flag.parameter() for flag in flags] + _params_of(run),
        help=f"{_SUMMARIES[kind]}\n\n{_NOTES[kind]}",
        epilog=examples(*EXAMPLES[kind]),
    )


def _params_of(callback: Callable[..., Any]) -> list[click.Parameter]:
    """What decorators have gathered on a function, in the order in which they are read."""
    gathered: list[click.Parameter] = getattr(callback, "__click_params__", [])
    return list(reversed(gathered))


def _declared_command(name: str) -> click.Command:
    @click.command(name=name, cls=click.RichCommand, help=f"Run [pipelines.{name}] of tailrace.toml.")
    @click.option("--once", is_flag=True, help="Do what there is to do now, and end.")
    @place_options
    def run(once: bool, place: Place) -> int:
        return run_pipelines(lambda: _read_declared(place, once=once, only=name), place, restarts=True)

    return run


def _make(kind: str, flags: Sequence[Flag], given: Mapping[str, object], place: Place) -> Declared:
    """The pipeline that flags describe; without a flag of its own, the one that is declared by its name."""
    from tailrace.spark.pipelines.declared import Declared, make_config, with_defaults
    from tailrace.spark.pipelines.registry import find_pipeline

    if _is_declared(kind, given, place):
        return _read_declared(place, once="once" in given, only=kind)[0]
    pipeline = find_pipeline(kind)
    fields = pipeline.load_config().__dataclass_fields__
    values = with_defaults(pipeline, given, _defaults(place))
    values = {**values, **{key: value for key, value in _overrides(place).items() if key in fields}}
    spelled = spell_of(flags)
    config = make_config(
        pipeline, values, place=f"pipeline run {kind}", spell=lambda field: spelled.get(field, f"--{field}")
    )
    return Declared(name=getattr(config, "name", None) or kind, pipeline=pipeline, config=config)


def _is_declared(kind: str, given: Mapping[str, object], place: Place) -> bool:
    """Whether tailrace.toml has a pipeline of that name, and no flag describes another."""
    return set(given) <= {"once"} and kind in _declared_tables(place)


def _read_declared(place: Place, *, once: bool, only: str | None = None) -> list[Declared]:
    from tailrace.spark.pipelines.declared import read_declared

    tables = _declared_tables(place)
    if not tables and only is None:
        raise ConfigError(
            'no pipeline is declared. Add [pipelines.NAME] with run = "archive" to tailrace.toml'
        )
    overrides = _overrides(place) | ({"once": True, "every_s": None} if once else {})
    return read_declared(tables, overrides=overrides, defaults=_defaults(place), only=only)


def _overrides(place: Place) -> dict[str, object]:
    """What every pipeline is told that has such a field."""
    told: dict[str, object] = {}
    if place.bootstrap is not None:
        told["bootstrap"] = place.bootstrap
    if place.output.format != "table":
        told["output"] = "json"  # of rows that go to the console
    return told


def _defaults(place: Place) -> dict[str, object]:
    """What holds for every pipeline that has such a field and is not told otherwise."""
    configuration = _configuration(place)
    defaults: dict[str, object] = {"schema": dict(configuration.schemas)}
    data_dir = Path(str(configuration["storage.data_dir"]))
    if data_dir.is_dir() and os.access(data_dir, os.W_OK):
        defaults["state"] = str(data_dir.absolute())
    return defaults


def _declared_tables(place: Place) -> Mapping[str, object]:
    return _configuration(place).pipelines


def _spark_settings(place: Place) -> SparkSettings:
    """What flags and [spark] of tailrace.toml say about Spark."""
    from tailrace.spark.pipelines.spark_settings import SparkSettings, read_conf, read_table

    flags = SparkSettings(
        master=place.master,
        remote=place.remote,
        conf=read_conf(place.conf),
        packages=_listed(place.packages),
        py_files=_listed(place.py_files),
        archives=_listed(place.archives),
        ship=place.ship,
        ui=place.ui,
    )
    return flags.over(read_table(_configuration(place).spark))


def _listed(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(each.strip() for value in values for each in value.split(",") if each.strip())


def _configuration(place: Place) -> Configuration:
    from tailrace.server.configuration import read_config

    return read_config(environment=os.environ, file=place.config_file)


# ---- running


def run_pipelines(make: Callable[[], list[Declared]], place: Place, *, restarts: bool = False) -> int:
    """Run what `make` makes, show it, and say how it ended; `restarts` is the runner's."""
    from tailrace.cli.pipeline_screen import RunScreen, show_outcomes
    from tailrace.spark.pipelines.session import check_spark, open_session
    from tailrace.spark.pipelines.spark_settings import check_settings

    settings = check_settings(_spark_settings(place))
    check_spark(java=settings.remote is None)
    declared = _made(make)
    _check_brokers(declared)
    _check_lakes(declared)
    from tailrace.spark.pipelines.runner import Runner, end_silently

    screen = RunScreen(place.output)
    try:
        runner = Runner(
            declared,
            bootstrap=place.bootstrap,
            watch=screen.watch,
            ended=screen.ended if len(declared) > 1 else end_silently,
            restarts=restarts,
        )
        name = "tailrace " + ", ".join(each.name for each in declared)
        with (
            _signals(runner) as interrupting,
            open_session(settings, name=name, tell=screen.tell, show_log=place.spark_log) as spark,
        ):
            interrupting.clear()
            if place.with_parent:
                _stop_with_parent(runner)
            screen.tell(f"running {', '.join(each.name for each in declared)}...")
            if any(getattr(each.config, "to", None) == "console" for each in declared):
                screen.give_way()
            outcomes = runner.run(spark)
    finally:
        screen.close()
    show_outcomes(outcomes, place.output)
    sys.stdout.flush()
    return _exit_code(outcomes, declared)


def _made(make: Callable[[], list[Declared]]) -> list[Declared]:
    try:
        return make()
    except ImportError as error:
        missing = error.name or error
        raise ConfigError(
            f"pipelines need {missing}, which is not installed. Try: {INSTALL_SPARK}"
        ) from error


def _check_brokers(declared: Sequence[Declared]) -> None:
    """Spark takes a while to start, and a broker that is not there is known at once."""

    async def nothing(_client: KafkaClient) -> None:
        """Connecting is all."""

    wanted = {each.bootstrap for each in declared if each.pipeline.needs_broker}
    for bootstrap in sorted(each for each in wanted if each is not None):
        Cluster(bootstrap).run(nothing)


def _check_lakes(declared: Sequence[Declared]) -> None:
    """The same of a lake that is to be read, unless another of these runs may be the one that makes it.

    One that is run again and again waits for its lake.
    """
    if len(declared) > 1:
        return
    from tailrace.spark.lake import open_table

    for each in declared:
        lake = getattr(each.config, "lake", None)
        if lake is not None and not _is_repeated(each):
            open_table(lake).close()


def _exit_code(outcomes: Sequence[Outcome], declared: Sequence[Declared]) -> int:
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if len(outcomes) == 1 and failed:
        raise _as_failure(failed[0])
    if failed:
        all_missing = all(isinstance(each.error, DataMissing) for each in failed)
        raise CommandFailed(
            "; ".join(f"{each.name} failed: {each.reason}" for each in failed),
            exit_code=ExitCode.DATA_MISSING if all_missing else ExitCode.ERROR,
        )
    gone = [f"{each.name}: {text}" for each in outcomes if (text := _gone_text(each))]
    if gone:
        raise CommandFailed(
            f"records were deleted before they were archived, and the rest is in the lake: {'; '.join(gone)}",
            exit_code=ExitCode.DATA_MISSING,
        )
    unfinished = any(
        outcome.state == "stopped" and getattr(each.config, "once", True) and not _is_repeated(each)
        for outcome, each in zip(outcomes, declared, strict=True)
    )
    return ExitCode.INTERRUPTED if unfinished else ExitCode.OK


def _gone_text(outcome: Outcome) -> str:
    """What this run found deleted before it was archived; empty if nothing was."""
    from tailrace.spark.lake.missing import find_missing, tell_missing

    bad = getattr(outcome.result, "bad", ())
    return tell_missing(find_missing(bad, topics={each.topic for each in bad}))


def _is_repeated(declared: Declared) -> bool:
    """Whether it goes on until it is stopped, though its pipeline comes to an end each time."""
    return getattr(declared.config, "every_s", None) is not None


def _as_failure(outcome: Outcome) -> Exception:
    """What the one run failed with, for the exit code; of Spark's errors, the words that a person needs."""
    from tailrace.spark.pipelines.failure import is_spark_error

    assert outcome.error is not None
    if isinstance(outcome.error, TailraceError | OSError) or not is_spark_error(outcome.error):
        return outcome.error
    return CommandFailed(outcome.reason or "failed")


@contextmanager
def _signals(runner: Runner) -> Iterator[threading.Event]:
    """SIGINT and SIGTERM end the runs after their batch, the second one at once.

    While the event that is given is set, nothing runs yet and the first one ends it all.
    """
    starting, asked = threading.Event(), threading.Event()
    starting.set()

    def caught(number: int, _frame: object) -> None:
        if starting.is_set():
            raise KeyboardInterrupt
        if asked.is_set():
            os._exit(128 + number)
        asked.set()
        runner.stop()
        os.write(sys.stderr.fileno(), f"{_clear_line()}{_STOPPING}\n".encode())

    before = {each: signal.signal(each, caught) for each in _SIGNALS}
    try:
        yield starting
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _clear_line() -> str:
    return "\r\x1b[K" if sys.stderr.isatty() else ""


def _stop_with_parent(runner: Runner) -> None:
    """Whoever started us holds the other end of stdin; when they are gone, there is nobody to run for."""

    def wait() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        runner.stop()

    threading.Thread(target=wait, name="parent", daemon=True).start()


for _kind, _flags in FLAGS.items():
    command.add_command(_pipeline_command(_kind, _flags))
