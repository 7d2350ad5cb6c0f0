"""The table of pipelines: what is in it exists, and what is not is refused with a suggestion."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from tailrace.model import ConfigError
from tailrace.spark.pipelines.registry import PIPELINES, find_pipeline

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'tailrace[spark]'")


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_is_a_typed_config_and_a_function(name: str) -> None:
    pipeline = find_pipeline(name)
    config = pipeline.load_config()
    assert dataclasses.is_dataclass(config)
    assert config.__dataclass_params__.frozen  # type: ignore[attr-defined]
    parameters = inspect.signature(pipeline.load_function()).parameters
    assert {"spark", "observe", "stop"} <= parameters.keys()
    fields = {field.name for field in dataclasses.fields(config)}
    assert ("bootstrap" in fields) or not pipeline.needs_broker


@pytest.mark.parametrize(
    ("name", "said"),
    [("archiv", "did you mean archive?"), ("xyz", "there are archive, replay, sql, compact, report")],
)
def test_what_is_no_pipeline_is_refused_with_a_way_out(name: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        find_pipeline(name)
    assert str(error.value) == f"{name!r} is not a pipeline: {said}"
