"""Where values come from: flags, the environment, a TOML file. Who wins is decided elsewhere.

Nothing is obeyed here but names: a name that belongs to no setting is a problem with a suggestion, and a
value that its kind will not take is a problem that says what it must be. Problems are collected, so that one
look at a file shows them all.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.model import ConfigError
from tailrace.server.alias import ENVIRONMENT_ALIASES, FILE_ALIASES, Alias
from tailrace.server.kind import Refused, Value
from tailrace.server.listener import ListenerConfig, read_listeners
from tailrace.server.setting import Setting
from tailrace.server.variable import PREFIX, is_service_link

FILE_BYTES_MAX = 1 << 20
PIPELINES_TABLE = "pipelines"
SCHEMAS_TABLE = "schemas"
SPARK_TABLE = "spark"
LISTENERS_TABLE = "listeners"
_FROM_FILE = "_FILE"

_TABLE_LINE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_KEY_LINE = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]+\"|'[^']+'|\s*\.\s*)+?)\s*=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One value that somebody set."""

    value: Value = field(repr=False)  # it may be a secret
    source: str  # in words: flag --host, environment TAILRACE_SERVER__HOST, tailrace.toml line 3


@dataclass(slots=True)
class Source:
    """What one place says: values by key, and what is wrong with it."""

    values: dict[str, Given] = field(default_factory=dict)
    pipelines: dict[str, object] = field(default_factory=dict)  # tables as they stand; only a file has any
    schemas: dict[str, str] = field(default_factory=dict)  # by topic; only a file has any
    spark: dict[str, object] = field(default_factory=dict)  # the same
    listeners: list[ListenerConfig] = field(default_factory=list)  # the same
    problems: list[str] = field(default_factory=list)

    def take(self, setting: Setting, given: object, *, source: str, name: str) -> None:
        """Read one value under the name by which it was given."""
        try:
            self.values[setting.key] = Given(value=setting.kind.read(given), source=source)
        except Refused as error:
            self.problems.append(f"{source}: {error}")
        except ValueError as error:
            self.problems.append(f"{source}: {name} = {_shown(given)} must be {error}")


def read_flags(settings: Mapping[str, Setting], flags: Mapping[str, object]) -> Source:
    """Values by key, as the command line parsed them; None means that the flag was not given."""
    source = Source()
    for key, given in flags.items():
        if given is not None:
            flag = settings[key].flag
            source.take(settings[key], given, source=f"flag {flag}", name=flag)
    return source


def read_environment(settings: Mapping[str, Setting], environment: Mapping[str, str]) -> Source:
    """TAILRACE_<TABLE>__<NAME>, else TAILRACE_<FLAG>, both also with _FILE for a value that lies in a file,
    else the older names."""
    source = Source()
    by_flag = {setting.flag_environment: setting for setting in settings.values() if setting.flag}
    by_own = {setting.environment: setting for setting in settings.values()}
    by_name = by_flag | by_own
    for name, alias in ENVIRONMENT_ALIASES.items():
        if name in environment:
            place = f"environment {name}"
            _take_alias(source, settings[alias.key], environment[name], alias=alias, place=place)
    for name in sorted(environment, key=lambda name: ("__" in name, name)):  # the own name wins
        if not name.startswith(PREFIX) or is_service_link(name, environment[name]):
            continue
        if name in by_name:
            place = f"environment {name}"
            source.take(by_name[name], environment[name], source=place, name=by_name[name].key)
        elif name.endswith(_FROM_FILE) and (setting := by_name.get(name.removesuffix(_FROM_FILE))):
            _take_file(source, setting, environment[name], name=name)
        elif suggestion := _meant_in_environment(name, by_own):
            source.problems.append(f"environment {name} is not a setting{suggestion}")
    return source


def read_file(settings: Mapping[str, Setting], path: Path) -> Source:
    """A TOML file. That it cannot be read, or is not TOML, is its one problem."""
    source = Source()
    try:
        text = path.read_bytes()[: FILE_BYTES_MAX + 1].decode("utf-8-sig")  # editors mark it
        if len(text) > FILE_BYTES_MAX:
            raise ConfigError(f"{path} is over {FILE_BYTES_MAX} bytes, which no configuration file is")
        document = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}. Name another file with --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    _take_pipelines(source, document, path)
    _take_schemas(source, document, path)
    _take_spark(source, document, path)
    _take_listeners(source, document, path)
    lines = _lines(text)
    for key, given in sorted(_flatten(document), key=lambda pair: pair[0] not in FILE_ALIASES):
        place = f"{path} line {lines[key]}" if key in lines else str(path)
        if setting := settings.get(key):
            source.take(setting, given, source=place, name=key)
        elif alias := FILE_ALIASES.get(key):
            _take_alias(source, settings[alias.key], given, alias=alias, place=f"{place} ({key})")
        else:
            source.problems.append(f"{place}: {key} is not a setting{suggest(key, settings)}")
    return source


def _take_pipelines(source: Source, document: dict[str, object], path: Path) -> None:
    """[pipelines.NAME] are no settings of a node; of them only the shape is looked at here."""
    if PIPELINES_TABLE not in document:
        return
    from tailrace.spark.pipelines.declared import check_declared

    pipelines = document.pop(PIPELINES_TABLE)
    if isinstance(pipelines, dict):
        source.pipelines = pipelines
        problems = check_declared(pipelines, with_configs=False)
        source.problems += [f"{path}: {problem}" for problem in problems]
    else:
        source.problems.append(f"{path}: {PIPELINES_TABLE} must be tables: write [{PIPELINES_TABLE}.NAME]")


def _take_schemas(source: Source, document: dict[str, object], path: Path) -> None:
    """[schemas.TOPIC] are the types of values, for pipelines alone."""
    if SCHEMAS_TABLE not in document:
        return
    from tailrace.spark.pipelines.declared import read_schemas

    schemas = document.pop(SCHEMAS_TABLE)
    if not isinstance(schemas, dict):
        source.problems.append(f"{path}: {SCHEMAS_TABLE} must be tables: write [{SCHEMAS_TABLE}.TOPIC]")
        return
    try:
        source.schemas = read_schemas(schemas)
    except ConfigError as error:
        source.problems.append(f"{path}: {error}")


def _take_spark(source: Source, document: dict[str, object], path: Path) -> None:
    """[spark] says what the Spark of the pipelines is told; a node has no use for it."""
    if SPARK_TABLE not in document:
        return
    from tailrace.spark.pipelines.spark_settings import check_settings, read_table

    table = document.pop(SPARK_TABLE)
    try:
        if not isinstance(table, dict):
            raise ConfigError(f"{SPARK_TABLE} must be a table: write [{SPARK_TABLE}]")
        check_settings(read_table(table))
    except ConfigError as error:
        source.problems.append(f"{path}: {error}")
    else:
        source.spark = table


def _take_listeners(source: Source, document: dict[str, object], path: Path) -> None:
    """[[listeners]] take the place of the default listeners."""
    if LISTENERS_TABLE not in document:
        return
    source.listeners, problems = read_listeners(document.pop(LISTENERS_TABLE))
    source.problems += [f"{path}: {each}" for each in problems]


def suggest(key: str, settings: Mapping[str, Setting]) -> str:
    """The way out for a key that does not exist."""
    known = list(settings)
    name = key.partition(".")[2] or key
    joined = [each for each in known if each.partition(".")[2] == key.replace(".", "_")]  # kafka.port
    elsewhere = [each for each in known if each.partition(".")[2] in (name, key)]
    near = (
        joined
        or elsewhere
        or _by_node_wide_name(name)
        or difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    )
    return f". Did you mean {near[0]}?" if near else ". Try: tailrace config show"


def _by_node_wide_name(name: str) -> list[str]:
    """Kafka's own server.properties has log.retention.ms for what is topic_defaults.retention.ms here."""
    from tailrace.broker.configs import TOPIC_CONFIGS

    return [f"topic_defaults.{key.name}" for key in TOPIC_CONFIGS.values() if key.server_default == name]


def _take_alias(source: Source, setting: Setting, given: object, *, alias: Alias, place: str) -> None:
    try:
        converted = alias.convert(given)
    except ValueError as error:
        source.problems.append(f"{place}: {alias.name} = {_shown(given)} must be {error}")
    else:
        source.take(setting, converted, source=place, name=alias.name)


def _take_file(source: Source, setting: Setting, path: str, *, name: str) -> None:
    """The file's content without its last line break; what a secret's file holds is never shown."""
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        value = setting.kind.read(text)
    except OSError as error:
        source.problems.append(f"environment {name}: cannot read {path}: {error.strerror}")
    except ValueError as error:
        source.problems.append(f"environment {name}: what {path} holds for {setting.key} must be {error}")
    else:
        source.values[setting.key] = Given(value=value, source=f"environment {name}")


def _meant_in_environment(name: str, by_name: Mapping[str, Setting]) -> str:
    """A suggestion for a name that must be a setting's; "" for one that may be another program's."""
    flat = {known.replace("__", "_"): known for known in by_name}
    if meant := flat.get(name.replace("__", "_")):
        return f". Did you mean {meant}?"
    if "__" not in name:
        return ""
    near = difflib.get_close_matches(name, by_name, n=1, cutoff=0.6)
    return f". Did you mean {near[0]}?" if near else ". Try: tailrace config show"


def _flatten(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """`num.partitions`, `"num.partitions"` and a table `[broker.num]` are one and the same key."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _lines(text: str) -> dict[str, int]:
    """The line of every key, as far as it can be told without parsing TOML a second time."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _TABLE_LINE.match(line):
            table = _bare(found[1]) + "."
        elif found := _KEY_LINE.match(line):
            lines.setdefault(table + _bare(found[1]), number)
    return lines


def _bare(name: str) -> str:
    return re.sub(r"[\"'\s]", "", name)


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 60 else text[:57] + "..."
