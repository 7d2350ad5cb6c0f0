"""Configs out of tables and flags, with a pipeline of the test's own: values, wrong keys, wrong values."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from tailrace.model import ConfigError
from tailrace.spark.pipelines import declared, registry
from tailrace.spark.pipelines.declared import check_declared, make_config, read_declared
from tailrace.spark.pipelines.registry import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PourConfig:
    topic: tuple[str, ...]
    lake: str
    bootstrap: str = "127.0.0.1:9092"
    once: bool = False
    rows: int = 10
    pause_s: float = 1.5
    mode: Literal["fast", "slow"] = "fast"
    days: int | None = None


def check_config(config: PourConfig) -> None:
    if config.rows < 1:
        raise ConfigError(f"pour: rows is {config.rows}. Give at least 1")


POUR = Pipeline(name="pour", summary="", module=__name__, config="PourConfig", function="pour")


@pytest.fixture(autouse=True)
def pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"pour": POUR}
    monkeypatch.setattr(declared, "PIPELINES", table)
    monkeypatch.setattr(declared, "find_pipeline", lambda name: registry.find_pipeline(name, table=table))


def make(**values: object) -> Any:
    return make_config(POUR, {"topic": ["t"], "lake": "l", **values}, place="[pipelines.x]")


def refusal(**values: object) -> str:
    with pytest.raises(ConfigError) as error:
        make(**values)
    return str(error.value)


# ---- one config


def test_values_of_toml_become_a_config() -> None:
    made = make(topic=["a", "b"], rows=5, once=True, pause_s=2, days=3)
    assert made == PourConfig(topic=("a", "b"), lake="l", rows=5, once=True, pause_s=2.0, days=3)


def test_text_will_do_everywhere() -> None:
    made = make(topic="a, b,", rows="5", once="true", pause_s="0.5", days="3")
    assert made == PourConfig(topic=("a", "b"), lake="l", rows=5, once=True, pause_s=0.5, days=3)


def test_keys_may_have_dashes_and_from_is_the_lake() -> None:
    made = make_config(POUR, {"topic": "t", "from": "there", "pause-s": 1}, place="here")
    assert (made.lake, made.pause_s) == ("there", 1.0)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("rows", "many", "rows = 'many' must be int"),
        ("rows", 1.5, "rows = 1.5 must be int"),
        ("once", "perhaps", "once = 'perhaps' must be bool"),
        ("pause_s", [], "pause_s = [] must be float"),
        ("lake", 7, "lake = 7 must be str"),
        ("topic", [1], "topic = [1] must be str"),
        ("lake", "x" * 99 + "\n", None),
    ],
)
def test_a_wrong_value_is_named_with_what_it_must_be(key: str, value: object, said: str | None) -> None:
    if said is None:
        make(**{key: value})
    else:
        assert refusal(**{key: value}) == f"[pipelines.x]: {said}"


def test_a_word_that_is_not_among_the_choices_is_refused() -> None:
    assert "mode = 'medium' must be" in refusal(mode="medium")


def test_what_the_pipeline_itself_refuses_is_refused() -> None:
    assert refusal(rows=0) == "pour: rows is 0. Give at least 1"


@pytest.mark.parametrize(
    ("key", "hint"), [("row", "Did you mean rows?"), ("zzz", "It has topic, lake, bootstrap, once")]
)
def test_an_unknown_key_has_a_suggestion(key: str, hint: str) -> None:
    assert f"[pipelines.x]: {key} is not a setting of pour. {hint}" in refusal(**{key: 1})


def test_what_is_missing_is_named_as_it_is_typed() -> None:
    with pytest.raises(ConfigError, match=r"^pipeline run pour: pour needs --topic, --lake$"):
        make_config(POUR, {}, place="pipeline run pour", spell=lambda name: f"--{name}")


# ---- [pipelines.*]


def test_tables_become_pipelines_by_name() -> None:
    tables = {"pour": {"topic": "t", "lake": "l"}, "night": {"run": "pour", "topic": ["u"], "from": "m"}}
    first, second = read_declared(tables)
    assert (first.name, first.pipeline, first.config.topic) == ("pour", POUR, ("t",))
    assert (second.name, second.config.lake, second.bootstrap) == ("night", "m", "127.0.0.1:9092")
    (only,) = read_declared(tables, only="night")
    assert only == second


def test_overrides_win_where_the_pipeline_has_the_key() -> None:
    tables = {"pour": {"topic": "t", "lake": "l", "bootstrap": "a:1"}}
    (found,) = read_declared(tables, overrides={"bootstrap": "b:2", "once": True, "unheard_of": 1})
    assert (found.bootstrap, found.config.once) == ("b:2", True)


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ({"x": 5}, "pipelines.x must be a table"),
        ({"x": {}}, "[pipelines.x] needs run = one of pour"),
        ({"x": {"run": 5}}, "[pipelines.x] needs run = one of pour"),
        ({"x": {"run": "pur"}}, "[pipelines.x]: run = 'pur' is not a pipeline: did you mean pour?"),
        ({"x y": {"run": "pour"}}, "[pipelines.x y]: a name is up to 100"),
    ],
)
def test_a_wrong_shape_is_seen_without_loading_anything(
    tables: dict[str, object], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(_pipeline: Pipeline) -> type[Any]:
        raise AssertionError("loaded")

    monkeypatch.setattr(Pipeline, "load_config", load)
    (found,) = check_declared(tables, with_configs=False)
    assert found.startswith(problem)


def test_every_table_that_is_wrong_is_told() -> None:
    tables = {
        "a": {"run": "pour", "topic": "t"},
        "b": {"run": "pour", "topic": "t", "lake": "l"},
        "c": {"run": "pour", "topic": "t", "lake": "l", "rowz": 1},
    }
    assert check_declared(tables, with_configs=False) == []
    assert check_declared(tables, with_configs=True) == [
        "[pipelines.a]: pour needs lake",
        "[pipelines.c]: rowz is not a setting of pour. Did you mean rows?",
    ]


def test_what_cannot_be_loaded_cannot_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = dataclasses.replace(POUR, module="tailrace.absent")
    monkeypatch.setattr(declared, "find_pipeline", lambda _name: absent)
    (problem,) = check_declared({"pour": {}}, with_configs=True)
    assert problem.startswith("[pipelines.pour] cannot be checked without tailrace.absent")


def test_a_pipelines_own_name_is_not_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    other = dataclasses.replace(POUR, name="spill")
    monkeypatch.setattr(declared, "PIPELINES", {"pour": POUR, "spill": other})
    monkeypatch.setattr(declared, "find_pipeline", lambda _name: POUR)
    (problem,) = check_declared({"spill": {"run": "pour"}}, with_configs=False)
    assert "choose another name" in problem


def test_a_name_that_nobody_declared_is_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"'pou' is neither a pipeline nor declared. Did you mean pour\?"):
        read_declared({"night": {}}, only="pou")
    with pytest.raises(ConfigError, match=r"There are pour and in tailrace\.toml: night"):
        read_declared({"night": {}}, only="zzz")
