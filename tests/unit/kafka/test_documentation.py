"""docs/protocol/kafka.md against the code: versions, settings without effect, settings that may change."""

from __future__ import annotations

import re
from pathlib import Path

from tailrace.broker.configs import BROKER_CONFIGS, GROUP_CONFIGS
from tailrace.broker.configs.without_effect import WITHOUT_EFFECT
from tailrace.kafka.dispatch import served_apis

TEXT = (Path(__file__).parents[3] / "docs" / "protocol" / "kafka.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    (found,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_documented_versions_are_those_that_are_advertised() -> None:
    rows = re.findall(
        r"^\| (\d+) \| (\w+) \| (\d+)(?:-(\d+))? \|$", section("APIs and versions"), re.MULTILINE
    )
    documented = [(int(key), name, int(first), int(last or first)) for key, name, first, last in rows]
    assert documented == [
        (api.key, api.name, api.advertised_min, api.advertised_max) for api in served_apis()
    ]


def test_every_setting_without_effect_is_documented_with_its_reason() -> None:
    documented = dict(re.findall(r"^\| `([\w.]+)` \| (.+) \|$", section("Settings of topics"), re.MULTILINE))
    assert documented == {key.name: key.doc.rpartition("without effect: ")[2] for key in WITHOUT_EFFECT}


def test_every_setting_that_may_change_is_documented() -> None:
    paragraph = section("Settings of nodes").strip().split("\n\n")[1]
    changeable = [name for name, key in BROKER_CONFIGS.items() if not key.read_only]
    assert re.findall(r"`([\w.]+)`", paragraph) == changeable


def test_every_setting_of_a_group_is_documented() -> None:
    rows = re.findall(
        r"^\| `([\w.]+)` \| ([\d,]+) \| ([\d,]+) to ([\d,]+) \|$", section("Settings of groups"), re.MULTILINE
    )
    documented = [(name, *(int(each.replace(",", "")) for each in numbers)) for name, *numbers in rows]
    assert documented == [
        (name, int(key.default), key.at_least, key.at_most) for name, key in GROUP_CONFIGS.items()
    ]
