"""What a pipeline's Spark is told: flags over [spark] of tailrace.toml over the defaults of a pipeline.

    [spark]
    master = "spark://head:7077"
    packages = ["org.apache.hadoop:hadoop-aws:3.4.1"]
    ship = true

    [spark.conf]
    "spark.executor.memory" = "4g"

A key of `conf` that flags give too is the flag's; a list or a switch that a flag gives replaces the file's.
Nothing of pyspark is imported here: wrong settings are found before Spark starts.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from tailrace.model import ConfigError
from tailrace.spark.pipelines.interpreter import PYTHON_CONF

LOCAL = "local[*]"
_MASTER = "spark.master"
_REMOTE = "spark.remote"
_PREFIX = "spark."


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Where pipelines run, and what Spark gets for them."""

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    py_files: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    ship: bool = False
    ui: bool = False

    @property
    def is_local(self) -> bool:
        """Whether everything runs on this machine, in one JVM."""
        return self.remote is None and (self.master or LOCAL).startswith("local")

    def over(self, below: SparkSettings) -> SparkSettings:
        """These, and the others where these say nothing; a place to run replaces the other kind of place."""
        given = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) not in (None, (), False)
        }
        if self.master is not None or self.remote is not None:
            below = replace(below, master=None, remote=None)
        return replace(below, **{**given, "conf": {**below.conf, **self.conf}})


def check_settings(settings: SparkSettings) -> SparkSettings:
    """The settings with the master that `conf` names; ConfigError with the flag and the fix."""
    if settings.master is not None and settings.remote is not None:
        raise ConfigError("--master and --remote exclude each other: give the one that Spark runs on")
    for key in settings.conf:
        if not key.startswith(_PREFIX):
            raise ConfigError(
                f"--conf {key}: Spark's settings begin with {_PREFIX}. Try: --conf {_PREFIX}{key}"
            )
    settings = _with_master(settings)
    _check_files(settings)
    if settings.remote is not None:
        _check_remote(settings)
    if settings.ship and settings.is_local:
        raise ConfigError(
            "--ship sends Tailrace to the workers of a cluster. Name it with --master, or omit it"
        )
    return settings


def _with_master(settings: SparkSettings) -> SparkSettings:
    if _REMOTE in settings.conf:
        raise ConfigError(f"--conf {_REMOTE} is --remote {settings.conf[_REMOTE]} here")
    master = settings.conf.get(_MASTER)
    if master is None:
        return settings
    if settings.master not in (None, master) or settings.remote is not None:
        raise ConfigError(f"--conf {_MASTER}={master} and another Spark are given: give one of them")
    return replace(settings, master=master)


def _check_files(settings: SparkSettings) -> None:
    for flag, paths in (("--py-files", settings.py_files), ("--archives", settings.archives)):
        for path in paths:
            if "://" not in path and not Path(_file_of(path)).exists():
                raise ConfigError(f"{flag} {path}: there is no such file")


def _check_remote(settings: SparkSettings) -> None:
    decided = [
        flag
        for flag, is_given in (
            ("--packages", settings.packages),
            ("--ship", settings.ship),
            ("--ui", settings.ui),
            (f"--conf {PYTHON_CONF}", PYTHON_CONF in settings.conf),
        )
        if is_given
    ]
    if decided:
        raise ConfigError(
            f"{decided[0]} cannot be used with --remote: the Spark Connect server decides it when it starts"
        )


def spark_conf(settings: SparkSettings, *, defaults: Mapping[str, str]) -> dict[str, str]:
    """The conf of a new Spark; lists of files that `conf` has too are added to."""
    conf = {**defaults, "spark.ui.enabled": str(settings.ui).lower(), **settings.conf}
    given = {
        "spark.jars.packages": settings.packages,
        "spark.submit.pyFiles": [_as_uri(each) for each in settings.py_files],
        "spark.archives": [_as_uri(each) for each in settings.archives],
    }
    for key, values in given.items():
        if values:
            conf[key] = ",".join([*filter(None, [conf.get(key)]), *values])
    return conf


def _as_uri(path: str) -> str:
    """A file of this machine by its absolute path: the JVM may have started in another directory."""
    if "://" in path:
        return path
    file = _file_of(path)
    return str(Path(file).absolute()) + path[len(file) :]


def _file_of(path: str) -> str:
    """`env.tar.gz#environment` is env.tar.gz, unpacked as `environment`."""
    return path.rpartition("#")[0] or path


# ---- out of text


def read_conf(pairs: Iterable[str]) -> dict[str, str]:
    """`--conf KEY=VALUE` of the command line; ConfigError for what is none."""
    conf = {}
    for pair in pairs:
        key, found, value = pair.partition("=")
        if not found or not key.strip():
            raise ConfigError(f"--conf {pair} is not KEY=VALUE. Try: --conf spark.executor.memory=4g")
        conf[key.strip()] = value
    return conf


def read_table(table: Mapping[str, object]) -> SparkSettings:
    """[spark] of a configuration file; ConfigError names the key and what it must be."""
    known = {each.name for each in fields(SparkSettings)}
    given: dict[str, object] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"It has {', '.join(sorted(known))}"
            raise ConfigError(f"[spark]: {key} is not a setting. {hint}")
        given[name] = _read_value(name, value)
    return SparkSettings(**given)  # type: ignore[arg-type]  # each is of its field's type


def _read_value(name: str, value: object) -> object:
    match name:
        case "conf" if isinstance(value, dict):
            return dict(_flatten(value))
        case "ship" | "ui" if isinstance(value, bool):
            return value
        case "packages" | "py_files" | "archives":
            listed = value.split(",") if isinstance(value, str) else value
            if isinstance(listed, list) and all(isinstance(each, str) for each in listed):
                return tuple(each.strip() for each in listed if each.strip())
        case "master" | "remote" if isinstance(value, str) and value.strip():
            return value.strip()
    raise ConfigError(f"[spark]: {name} = {value!r} must be {_WANTED[name]}")


_WANTED = {
    "conf": 'a table: write [spark.conf] and below it "spark.executor.memory" = "4g"',
    "ship": "true or false",
    "ui": "true or false",
    "packages": "a list of texts",
    "py_files": "a list of texts",
    "archives": "a list of texts",
    "master": "a text such as spark://head:7077",
    "remote": "a text such as sc://host",
}


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """`spark.executor.memory` without quotes is a table of tables to TOML."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _flatten(value, f"{key}.")
        elif isinstance(value, bool):
            yield key, str(value).lower()
        elif isinstance(value, str | int | float):
            yield key, str(value)
        else:
            raise ConfigError(f"[spark.conf]: {key} = {value!r} must be a text, a number, true or false")
