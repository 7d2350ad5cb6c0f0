"""The Spark that a pipeline runs on: looked for, started with few words, and stopped.

Without a master it is `local[*]` in a JVM of our own; `--master` names a cluster, `--remote` a Spark Connect
server (sc://HOST). What is missing is said before anything starts: no pyspark, no Java, or a Java that Spark
does not run on.

Rules:
- Spark speaks on its JVM's stderr, and most of it is noise. We read that stream, keep its last lines for the
  error of a start that fails, and pass it on only where `show_log` asks for it. Errors of a query come as
  exceptions, so nothing is lost by that. The JVM's stdout stays ours.
- Ctrl-C belongs to the caller. pyspark starts the JVM deaf to SIGINT, but sets a handler in
  this process that cancels every job; the one that was here before is put back.
- A session that was there already is used and left alone.
- Which Python Spark runs is decided by interpreter.py, where Spark lies by spark_home.py. The environment is
  changed only while the JVM and its session start.
- On a cluster the workers are asked first what they have (worker_check.py), and the number of shuffle
  partitions follows from the cores of the cluster unless it is given.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tailrace.model import ConfigError
from tailrace.spark import INSTALL_SPARK
from tailrace.spark.pipelines.interpreter import Interpreter, make_interpreter, plan_name
from tailrace.spark.pipelines.ship import pack
from tailrace.spark.pipelines.spark_home import cache_dir, make_spark_home
from tailrace.spark.pipelines.spark_settings import LOCAL, SparkSettings, check_settings, spark_conf
from tailrace.spark.pipelines.worker_check import check_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]

JAVA_MIN = 17
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_SPARKS_DEFAULT = "200"  # shuffle partitions, each of which costs a task and, in a stream, a state store
_JAVA_FIX = (
    "On Debian: apt-get install openjdk-17-jre-headless; elsewhere set JAVA_HOME to a Java 17 or newer"
)
_JAVA_TIMEOUT_S = 30.0
_RELEASE_CHARS_MAX = 100_000
_LINES_KEPT = 200
_LINES_SHOWN = 3
_LAST_WORDS_S = 2.0


def _ignore(_text: str) -> None:
    """For callers without a screen."""


@contextmanager
def open_session(
    settings: SparkSettings | None = None,
    *,
    name: str,
    tell: Tell = _ignore,
    show_log: bool = False,
) -> Iterator[SparkSession]:
    """A session for the time of the block; ConfigError with the fix if this machine cannot have one."""
    settings = check_settings(settings or SparkSettings())
    version = check_spark(java=settings.remote is None)
    if settings.remote is not None:
        yield from _connect(settings, name=name, version=version, tell=tell)
        return
    found = _running_session()
    if found is not None:
        yield found
        return
    yield from _start(settings, name=name, version=version, tell=tell, show_log=show_log)


def check_spark(*, java: bool = True) -> str:
    """The version of pyspark; ConfigError with the fix if it, or a Java for it, is not here."""
    version = _find_pyspark()
    if version is None:
        raise ConfigError(f"pipelines need pyspark, which is not installed. Try: {INSTALL_SPARK}")
    if int(version.partition(".")[0]) < 4:
        raise ConfigError(f"pipelines need Spark 4, and pyspark {version} is installed. Try: {INSTALL_SPARK}")
    if java:
        _check_java()
    return version


def _find_pyspark() -> str | None:
    """Its version without importing it, which takes a while."""
    if find_spec("pyspark") is None:
        return None
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:  # a copy that pip knows nothing of
        from pyspark.version import __version__ as version

        return str(version)


def find_java() -> str | None:
    """The program that Spark would start: that of JAVA_HOME, else the first of the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home, "bin", "java")
        return str(program) if os.access(program, os.X_OK) else None
    return shutil.which("java")


def read_java_version(text: str) -> int | None:
    """The major version in what `java -version` prints or a `release` file has: 17 of "17.0.15"."""
    found = re.search(r'(?:version |JAVA_VERSION=)"(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def _check_java() -> None:
    program = find_java()
    if program is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is none on the PATH"
        raise ConfigError(f"Spark needs Java, and {where}. {_JAVA_FIX}")
    version = read_java_version(_java_release(program)) or read_java_version(_ask_java(program))
    if version is None:
        raise ConfigError(f"Spark needs Java, and {program} does not tell its version. {_JAVA_FIX}")
    if version < JAVA_MIN:
        raise ConfigError(
            f"Spark needs Java {JAVA_MIN} or newer, and {program} is Java {version}. {_JAVA_FIX}"
        )


def _java_release(program: str) -> str:
    """The file that most Javas have beside them, or "": reading it is quicker than starting a Java."""
    release = Path(program).resolve().parent.parent / "release"
    try:
        return release.read_text(encoding="utf-8", errors="replace")[:_RELEASE_CHARS_MAX]
    except OSError:
        return ""


def _ask_java(program: str) -> str:
    try:
        asked = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"Spark needs Java, and {program} does not run: {error}. {_JAVA_FIX}") from error
    return asked.stderr + asked.stdout


def _running_session() -> SparkSession | None:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


# ---- a JVM of our own


def _start(
    settings: SparkSettings, *, name: str, version: str, tell: Tell, show_log: bool
) -> Iterator[SparkSession]:
    master = settings.master or LOCAL
    tell(f"starting Spark ({_shown_master(master)}, Spark {version})...")
    place = Path(tempfile.mkdtemp(prefix="tailrace-spark-"))
    try:
        if settings.ship:
            settings = replace(settings, archives=(*settings.archives, *pack(place / "ship")))
        conf = spark_conf(settings, defaults=_defaults(master, name=name, place=place))
        session = _launch(conf, settings, version=version, place=place, show_log=show_log)
        try:
            _settle(session, settings, tell=tell)
            yield session
        finally:
            tell("stopping Spark...")
            session.stop()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _defaults(master: str, *, name: str, place: Path) -> dict[str, str]:
    """What a pipeline's Spark is told where the settings say nothing else."""
    given = {
        "spark.master": master,
        "spark.app.name": name,
        "spark.log.level": "ERROR",
        "spark.scheduler.mode": "FAIR",  # pipelines that run together all get on
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.speculation": "false",  # two attempts of a task at once would both write to a topic
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "120000",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        given |= {
            # Nothing of a local Spark is for other machines.
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": str(place / "local"),
            SHUFFLE_PARTITIONS: str(max(_cores(master), 2)),
        }
    return given


def _settle(session: SparkSession, settings: SparkSettings, *, tell: Tell) -> None:
    """Check and set what only a running Spark tells."""
    if settings.ui:
        tell(f"Spark's UI: {session.sparkContext.uiWebUrl}")
    if settings.is_local:
        return
    cores = check_workers(session, tell=tell)
    if SHUFFLE_PARTITIONS not in settings.conf:
        session.conf.set(SHUFFLE_PARTITIONS, str(max(cores, 2)))


def new_session(session: SparkSession) -> SparkSession:
    """A session in the same Spark, with views of its own.

    Spark gives it the settings with which the JVM was started. What `_settle` has set since is set again.
    """
    made = session.newSession()
    partitions = session.conf.get(SHUFFLE_PARTITIONS)
    assert partitions is not None  # Spark has a default
    made.conf.set(SHUFFLE_PARTITIONS, partitions)
    return made


def _launch(
    given: Mapping[str, str], settings: SparkSettings, *, version: str, place: Path, show_log: bool
) -> SparkSession:
    """Start the JVM and a session in it, as pyspark's builder does, with the JVM's stderr in our hands."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf(loadDefaults=False)
    for key, value in given.items():
        conf.set(key, value)
    log = _JvmLog(show=show_log)
    if not show_log:
        _silence_queries()
    handler = _interrupt_handler()
    interpreter, environment = _plan_environment(settings, version=version, place=place)
    try:
        with _environment(environment):
            if SparkContext._gateway is None:
                with log.follow() as stderr:
                    started = {"stderr": stderr, "cwd": interpreter.start_dir}
                    gateway = launch_gateway(conf, popen_kwargs=started)  # type: ignore[no-untyped-call]
                SparkContext(conf=conf, gateway=gateway)
            return SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as error:  # py4j has errors of its own, and all of them mean: it did not start
        reason = str(error) if isinstance(error, PySparkException) else f"{type(error).__name__}: {error}"
        raise ConfigError(f"Spark did not start: {_first_line(reason)}{log.last_words()}") from error
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


def _plan_environment(
    settings: SparkSettings, *, version: str, place: Path
) -> tuple[Interpreter, dict[str, str]]:
    """The Python that Spark runs, and the variables that the JVM and pyspark start with."""
    name = plan_name(os.environ, settings.conf, is_local=settings.is_local)
    cache = cache_dir()
    try:
        interpreter = make_interpreter(name, cache=cache)
    except OSError:  # a home directory that cannot be written
        cache = place
        interpreter = make_interpreter(name, cache=cache)
    environment = interpreter.environment(os.environ)
    is_yarn = (settings.master or "").startswith("yarn")  # which uploads pyspark.zip, so it must be a file
    if "SPARK_HOME" not in environment and not is_yarn:
        environment["SPARK_HOME"] = str(_spark_home(version, cache=cache, place=place))
    return interpreter, environment


def _spark_home(version: str, *, cache: Path, place: Path) -> Path:
    try:
        return make_spark_home(version, cache=cache)
    except OSError:
        return make_spark_home(version, cache=place)


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Have exactly these variables in the block: pyspark hands os.environ to the JVM, and reads it itself."""
    before = dict(os.environ)
    _set_environment(wanted)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(wanted: Mapping[str, str]) -> None:
    for key in os.environ.keys() - wanted.keys():
        del os.environ[key]
    os.environ.update(wanted)


def _silence_queries() -> None:
    """A query that Spark cannot plan is an error that we tell; pyspark logs it with the JVM's whole stack."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


class _JvmLog:
    """What the JVM says, read so that it never blocks."""

    def __init__(self, *, show: bool) -> None:
        self._show = show
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self._ended = threading.Event()

    @contextmanager
    def follow(self) -> Iterator[int]:
        """The end of a pipe that a process may be started with in the block; it is read until that ends."""
        ours, theirs = os.pipe()
        stream = os.fdopen(ours, "rb")
        threading.Thread(target=self._read, args=(stream,), name="spark log", daemon=True).start()
        try:
            yield theirs
        except BaseException:
            os.close(theirs)
            self._ended.wait(_LAST_WORDS_S)  # the process has ended, and what it said explains why
            raise
        os.close(theirs)

    def last_words(self) -> str:
        """The lines that tell why, for the end of an error."""
        lines = [line for line in self._lines if re.search(r"ERROR|FATAL|Exception|Error:|error:", line)]
        return "".join(f" | {line.strip()}" for line in (lines or list(self._lines))[-_LINES_SHOWN:])

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for raw in stream:
                line = raw.decode(errors="replace").rstrip()
                self._lines.append(line)
                if self._show:
                    print(line, file=sys.stderr, flush=True)
        self._ended.set()


def _interrupt_handler() -> Any:
    """The present handler of SIGINT; None in a thread that cannot set one."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.getsignal(signal.SIGINT)


def _cores(master: str) -> int:
    found = re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", master)
    if found:
        return int(found[1])
    return 1 if master == "local" else os.cpu_count() or 1


def _shown_master(master: str) -> str:
    return f"local[{_cores(master)}]" if master == "local[*]" else master


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


# ---- a Spark Connect server


def _connect(settings: SparkSettings, *, name: str, version: str, tell: Tell) -> Iterator[SparkSession]:
    remote = settings.remote
    assert remote is not None
    tell(f"connecting to Spark ({remote}, Spark {version})...")
    from tailrace.spark.pipelines.spread import count_cores

    try:
        from pyspark.sql.connect.session import SparkSession as ConnectSession
    except ImportError as error:
        raise ConfigError(
            f"--remote needs the parts of Spark Connect, and {error.name or error} is missing. "
            "Try: pip install 'pyspark[connect]'"
        ) from error
    try:
        session = ConnectSession.builder.remote(remote).appName(name).getOrCreate()
        for key, value in {"spark.sql.session.timeZone": "UTC", **settings.conf}.items():
            session.conf.set(key, value)
        if settings.py_files:
            session.addArtifacts(*settings.py_files, pyfile=True)
        if settings.archives:
            session.addArtifacts(*settings.archives, archive=True)
        if (
            SHUFFLE_PARTITIONS not in settings.conf
            and session.conf.get(SHUFFLE_PARTITIONS) == _SPARKS_DEFAULT
        ):
            session.conf.set(SHUFFLE_PARTITIONS, str(max(count_cores(session), 2)))  # type: ignore[arg-type]
    except Exception as error:  # gRPC's, pyspark's, and ValueError for an address that is none
        raise ConfigError(f"--remote {remote} cannot be used: {_first_line(str(error))}") from error
    try:
        yield session  # type: ignore[misc]
    finally:
        tell("leaving Spark...")
        session.stop()
