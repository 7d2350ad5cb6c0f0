"""Configs out of plain values: what tailrace.toml declares, and what the command line was given.

    [pipelines.nightly]
    run = "archive"              # which pipeline; not needed if the table has a pipeline's name
    topic = ["orders", "payments"]
    to = "./lake"

    [schemas.orders]             # the types of a topic's values, for every pipeline that reads them
    value = "order STRING, total DECIMAL(12,2)"

Every other key is a field of the pipeline's config. Values may be text ("100", "true", "orders,payments"): a
flag is nothing else. A key that does not exist, is missing or has a wrong value is a ConfigError that names
the place, the key and the fix.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from tailrace.model import ConfigError
from tailrace.spark import INSTALL_SPARK
from tailrace.spark.pipelines.registry import PIPELINES, Pipeline, find_pipeline

RUN = "run"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ALIASES = {"from": "lake"}  # `from` is no name that a Python class can have
_AT = re.compile(r"^(.*?)(?: - at `\$\.?([^`]*)`)?$", re.DOTALL)

Table = Mapping[str, object]
Spell = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A pipeline that can be run."""

    name: str
    pipeline: Pipeline
    config: Any  # of the class that the pipeline has

    @property
    def bootstrap(self) -> str | None:
        """The cluster it works with, if any."""
        return getattr(self.config, "bootstrap", None)


def make_config(pipeline: Pipeline, values: Table, *, place: str, spell: Spell = str) -> Any:
    """The pipeline's config; `place` and `spell` say where the values stand and how their keys look there."""
    config_class = pipeline.load_config()
    given = {_field_name(key): value for key, value in values.items()}
    _check_names(pipeline, config_class, given, place=place, spell=spell)
    hints = get_type_hints(config_class)
    given = {name: _listed(value, hints[name]) for name, value in given.items()}
    try:
        config = msgspec.convert(given, config_class, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place}: {_explain(error, given, spell)}") from error
    check = getattr(sys.modules[pipeline.module], "check_config", None)
    if check is not None:
        check(config)
    return config


def read_declared(
    tables: Mapping[str, object],
    *,
    overrides: Table | None = None,
    defaults: Table | None = None,
    only: str | None = None,
) -> list[Declared]:
    """What [pipelines.*] declares. `overrides` win over every table whose pipeline has such a key.

    `defaults` hold where a table says nothing, as `with_defaults` tells.
    """
    if only is not None and only not in tables:
        raise ConfigError(f"{only!r} is neither a pipeline nor declared.{suggest_name(only, tables)}")
    return [
        _read_one(name, tables[name], overrides or {}, defaults or {})
        for name in tables
        if only in (None, name)
    ]


def with_defaults(pipeline: Pipeline, values: Table, defaults: Table) -> Table:
    """Values with those defaults that are settings of the pipeline; tables are joined key by key."""
    fields = {field.name for field in dataclasses.fields(pipeline.load_config())}
    joined = {**{key: value for key, value in defaults.items() if key in fields}, **values}
    for key, value in joined.items():
        default = defaults.get(key)
        if isinstance(value, dict) and isinstance(default, dict):
            joined[key] = {**default, **value}
    return joined


def read_schemas(tables: Mapping[str, object]) -> dict[str, str]:
    """What [schemas.TOPIC] declares, by topic; ConfigError names the table and the fix."""
    found = {}
    for topic, table in tables.items():
        if not isinstance(table, dict) or set(table) != {"value"} or not isinstance(table["value"], str):
            raise ConfigError(
                f'[schemas.{topic}] needs value = "COLUMN TYPE, ..." or the name of a schema file, and'
                " nothing else"
            )
        found[topic] = table["value"]
    return found


def check_schemas(schemas: Mapping[str, str]) -> list[str]:
    """Everything that is wrong with the schemas of topics, as far as it is seen without Spark."""
    from tailrace.spark.value.schema import read_schema

    problems = []
    for topic, text in schemas.items():
        try:
            read_schema(text)
        except ConfigError as error:
            problems.append(f"[schemas.{topic}]: {error}")
        except ImportError as error:
            missing = error.name or error
            problems.append(f"[schemas.{topic}] cannot be checked without {missing}. Try: {INSTALL_SPARK}")
    return problems


def check_declared(tables: Mapping[str, object], *, with_configs: bool) -> list[str]:
    """Everything that is wrong with [pipelines.*]; without the configs it sees only the shape."""
    problems = []
    for name, table in tables.items():
        try:
            if with_configs:
                _read_one(name, table, {}, {})
            else:
                _shape(name, table)
        except ConfigError as error:
            problems.append(str(error))
        except ImportError as error:
            missing = error.name or error
            problems.append(f"[pipelines.{name}] cannot be checked without {missing}. Try: {INSTALL_SPARK}")
    return problems


def suggest_name(name: str, tables: Mapping[str, object]) -> str:
    """The way out for a name that is neither a pipeline's nor declared."""
    near = difflib.get_close_matches(name, [*PIPELINES, *tables], n=1)
    if near:
        return f" Did you mean {near[0]}?"
    declared = f" and in tailrace.toml: {', '.join(tables)}" if tables else ""
    return (
        f" There are {', '.join(PIPELINES)}{declared}. Declare one with [pipelines.{name}] in tailrace.toml"
    )


def _read_one(name: str, table: object, overrides: Table, defaults: Table) -> Declared:
    pipeline, values = _shape(name, table)
    values = with_defaults(pipeline, values, {**defaults, "name": name})
    fields = {field.name for field in dataclasses.fields(pipeline.load_config())}
    won = {key: value for key, value in overrides.items() if key in fields}
    config = make_config(pipeline, {**values, **won}, place=f"[pipelines.{name}]")
    return Declared(name=name, pipeline=pipeline, config=config)


def _shape(name: str, table: object) -> tuple[Pipeline, Table]:
    """Which pipeline a table declares, and the rest of it; nothing is imported for that."""
    if not isinstance(table, dict):
        raise ConfigError(f"pipelines.{name} must be a table: write [pipelines.{name}] on a line of its own")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"[pipelines.{name[:100]}]: a name is up to 100 of A-Z a-z 0-9 . _ -")
    kind = table.get(RUN, name if name in PIPELINES else None)
    if not isinstance(kind, str):
        raise ConfigError(f"[pipelines.{name}] needs run = one of {', '.join(PIPELINES)}")
    try:
        pipeline = find_pipeline(kind)
    except ConfigError as error:
        raise ConfigError(f"[pipelines.{name}]: run = {error}") from error
    if name in PIPELINES and name != pipeline.name:
        raise ConfigError(
            f"[pipelines.{name}] runs {pipeline.name}, and {name} is a pipeline itself: choose another name"
        )
    return pipeline, {key: value for key, value in table.items() if key != RUN}


# ---- one config


def _field_name(key: str) -> str:
    return _ALIASES.get(key, key.replace("-", "_"))


def _check_names(
    pipeline: Pipeline, config_class: type[Any], given: Table, *, place: str, spell: Spell
) -> None:
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    for name in given:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"Did you mean {spell(near[0])}?" if near else f"It has {_join(fields, spell)}"
            raise ConfigError(f"{place}: {spell(name)} is not a setting of {pipeline.name}. {hint}")
    missing = [name for name, field in fields.items() if name not in given and _is_required(field)]
    if missing:
        raise ConfigError(f"{place}: {pipeline.name} needs {_join(missing, spell)}")


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _listed(value: object, hint: object) -> object:
    """Where several are possible, one alone may be plain text, and commas part them."""
    kinds = [hint, *get_args(hint)]
    if isinstance(value, str) and any(get_origin(kind) in (tuple, list) for kind in kinds):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _explain(error: msgspec.ValidationError, given: Table, spell: Spell) -> str:
    found = _AT.match(str(error))
    key = (found[2] or "") if found else ""
    name = key.partition("[")[0]
    if found is None or name not in given:
        return str(error)
    wanted = re.sub(r"^Expected `(.*?)`.*", r"\1", found[1])
    return f"{spell(name)} = {_shown(given[name])} must be {wanted}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _join(names: Sequence[str] | Mapping[str, object], spell: Spell) -> str:
    return ", ".join(spell(name) for name in names)
