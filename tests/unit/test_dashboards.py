"""Dashboards and alerts: parsed, held against the metrics of a real node, and given to promtool."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.certificates import certificates

from tailrace.broker import NewTopic
from tailrace.broker.groups import CommitRequest, OffsetToCommit
from tailrace.model import TopicPartition
from tailrace.model.address import Address
from tailrace.server.config import ServerConfig
from tailrace.server.listener import ListenerConfig
from tailrace.server.node import Node

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "deploy" / "grafana"
PROMETHEUS = ROOT / "deploy" / "prometheus"
BOARDS = ("overview", "topics", "consumers", "broker")
DEADLINE_S = 60

_METRIC = re.compile(r"\b(?:tailrace|kafka|process|python)_[a-z0-9_]+\b")
_SELECTOR = re.compile(r"\b((?:tailrace|kafka|process|python)_[a-z0-9_]+)\{([^}]*)\}")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_BY = re.compile(r"\bby\s*\(([^)]*)\)")
_SHOWN = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_OVER_TIME = re.compile(r"\b(i?rate|increase|i?delta|deriv|predict_linear)\(\s*([a-z0-9_]+)\b")
_OF_COUNTERS = frozenset({"rate", "irate", "increase"})  # which take a number that falls for a new start
_OF_PROMETHEUS = frozenset({"instance", "job"})  # which it adds to everything it reads


# ---- what is exported


async def use(node: Node, client: httpx.AsyncClient) -> None:
    """Something of everything that has figures."""
    await node.broker.topics.create(NewTopic(name="orders", partitions=2))
    records = {"records": [{"value": "a"}, {"value": "b"}]}
    for done in (
        await client.post("/api/v1/topics/orders/records", json=records),
        await client.get("/api/v1/topics/orders/records"),
        await client.post("/api/v1/subscriptions", json={"name": "workers", "topic": "orders"}),
        await client.post("/api/v1/subscriptions/workers/pull", json={"max": 1}),
    ):
        assert done.status_code in (200, 201), done.text
    ids = [each["ack_id"] for each in done.json()["messages"]]
    done = await client.post("/api/v1/subscriptions/workers/ack", json={"ack_ids": ids})
    assert done.status_code == 200, done.text
    commit = CommitRequest(
        group_id="billing",
        offsets={TopicPartition("orders", 0): OffsetToCommit(offset=1)},
    )
    await node.broker.groups.commit_offsets(commit)


async def scrape(data_dir: Path) -> str:
    loopback = Address("127.0.0.1", 0)
    listeners = tuple(
        ListenerConfig(name=name, protocol=protocol, address=loopback, tls=tls)
        for name, protocol, tls in (
            ("kafka", "kafka", None),
            ("encrypted", "kafka", certificates(data_dir.parent).config()),
            ("native", "native", None),
            ("http", "http", None),
        )
    )
    config = ServerConfig(engine="segment", data_dir=data_dir, listeners=listeners)
    node = Node(config, owns_loop=False)
    await node.start()
    try:
        base = f"http://{node.http_address}"
        async with httpx.AsyncClient(base_url=base, timeout=DEADLINE_S, trust_env=False) as client:
            await use(node, client)
            return (await client.get("/metrics", params={"partitions": "true"})).text
    finally:
        await node.close()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The names of samples with their labels."""
    text = asyncio.run(asyncio.wait_for(scrape(tmp_path_factory.mktemp("node")), DEADLINE_S))
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


# ---- what is asked for


@cache
def board(name: str) -> dict[str, Any]:
    found = json.loads((GRAFANA / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def panels(name: str) -> list[dict[str, Any]]:
    return [each for each in board(name)["panels"] if each["type"] != "row"]


def targets(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in panels(name):
        for target in panel["targets"]:
            yield panel["title"], target


@cache
def rules() -> tuple[dict[str, Any], ...]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return tuple(rule for group in groups for rule in group["rules"])


def asked() -> dict[str, str]:
    """Every expression there is, by where it stands."""
    found = {f"alert {rule['alert']}": str(rule["expr"]) for rule in rules()}
    for name in BOARDS:
        for title, target in targets(name):
            found[f"{name}: {title} {target['refId']}"] = target["expr"]
        for each in board(name)["annotations"]["list"]:
            found[f"{name}: annotation {each['name']}"] = each["expr"]
        for each in board(name)["templating"]["list"]:
            found[f"{name}: ${each['name']}"] = each["definition"]
    return found


def test_the_boards_are_those_that_are_documented() -> None:
    assert sorted(path.stem for path in GRAFANA.glob("*.json")) == sorted(BOARDS)


def test_every_metric_that_is_asked_for_is_exported(exported: Mapping[str, set[str]]) -> None:
    wanted = {(where, name) for where, text in asked().items() for name in _METRIC.findall(text)}
    assert len(wanted) > 100
    assert sorted((where, name) for where, name in wanted if name not in exported) == []


def test_every_label_that_is_selected_is_one_of_its_metric(exported: Mapping[str, set[str]]) -> None:
    wrong = [
        (where, name, label)
        for where, text in asked().items()
        for name, selector in _SELECTOR.findall(text)
        for label in _LABEL.findall(selector)
        if label not in exported.get(name, set()) | _OF_PROMETHEUS
    ]
    assert wrong == []


def test_every_label_that_is_grouped_by_is_one_of_its_metrics(exported: Mapping[str, set[str]]) -> None:
    for where, text in asked().items():
        known = set(_OF_PROMETHEUS).union(*(exported.get(name, set()) for name in _METRIC.findall(text)))
        grouped = {label.strip() for labels in _BY.findall(text) for label in labels.split(",")}
        assert grouped <= known, where


def test_only_what_never_falls_is_asked_for_as_a_counter(exported: Mapping[str, set[str]]) -> None:
    found = {
        (where, function, name)
        for where, text in asked().items()
        for function, name in _OVER_TIME.findall(text)
    }
    assert len(found) > 50
    for where, function, name in found:
        stem = re.sub(r"_(bucket|sum|count)$", "", name)
        grows = name.endswith("_total") or f"{stem}_bucket" in exported
        assert (function in _OF_COUNTERS) == grows, (where, function, name)


@pytest.mark.parametrize("name", BOARDS)
def test_legends_name_labels_that_are_left(name: str, exported: Mapping[str, set[str]]) -> None:
    for title, target in targets(name):
        text = target["expr"]
        metrics = [exported[each] for each in _METRIC.findall(text) if each in exported]
        groupings = [{each.strip() for each in labels.split(",")} for labels in _BY.findall(text)]
        left = set.union(*groupings) if groupings else set[str]().union(_OF_PROMETHEUS, *metrics)
        assert set(_SHOWN.findall(target["legendFormat"])) <= left, title


def test_everything_of_ours_is_on_a_dashboard(exported: Mapping[str, set[str]]) -> None:
    shown = {name for text in asked().values() for name in _METRIC.findall(text)}
    stems = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    ours = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for name in exported
        if name.startswith("tailrace_") and not name.startswith("tailrace_partition_")
    }
    assert sorted(ours - stems) == []


# ---- dashboards


def test_dashboards_can_be_told_apart() -> None:
    uids = [board(name)["uid"] for name in BOARDS]
    titles = [board(name)["title"] for name in BOARDS]
    assert len(set(uids)) == len(set(titles)) == len(BOARDS)
    assert all(re.fullmatch(r"[a-z0-9-]{1,40}", uid) for uid in uids)


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_made_for_grafana_10_and_belongs_to_nobodys_database(name: str) -> None:
    found = board(name)
    assert found["schemaVersion"] >= 38
    assert found["id"] is None
    assert found["description"].endswith(".")
    assert "__inputs" not in found  # which would be asked for, and provisioned files cannot answer


@pytest.mark.parametrize("name", BOARDS)
def test_panels_say_what_they_show_and_in_which_unit(name: str) -> None:
    assert panels(name)
    titles = [panel["title"] for panel in panels(name)]
    assert len(set(titles)) == len(titles)
    for panel in panels(name):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]


@pytest.mark.parametrize("name", BOARDS)
def test_everything_is_asked_of_the_provisioned_source(name: str) -> None:
    provisioned = ROOT / "deploy/observability/grafana/provisioning/datasources/prometheus.yml"
    (source,) = yaml.safe_load(provisioned.read_text(encoding="utf-8"))["datasources"]
    found = board(name)
    places = [*panels(name), *(target for _, target in targets(name))]
    places += found["templating"]["list"] + found["annotations"]["list"]
    assert {each["datasource"]["uid"] for each in places} == {source["uid"]}


@pytest.mark.parametrize("name", BOARDS)
def test_variables_that_are_used_are_there(name: str) -> None:
    known = {each["name"] for each in board(name)["templating"]["list"]}
    used = {each for _, target in targets(name) for each in re.findall(r"\$(\w+)", target["expr"])}
    assert used - {"__rate_interval"} == known


@pytest.mark.parametrize("name", BOARDS)
def test_panels_lie_beside_each_other(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    found = board(name)["panels"]
    assert len({panel["id"] for panel in found}) == len(found)
    for panel in found:
        place = panel["gridPos"]
        cells = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


# ---- alerts


def test_alerts_say_what_happened_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        notes = rule["annotations"]
        assert "{{ $labels.instance }}" in notes["summary"] or "by (instance" in rule["expr"], rule["alert"]
        assert len(notes["description"]) > 80, rule["alert"]


def test_alerts_lead_to_a_chapter_that_there_is() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    chapters = re.findall(r"^## (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in chapters}
    for rule in rules():
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert path == "docs/operations.md"
        assert anchor in anchors, rule["alert"]


def test_the_commands_that_alerts_and_panels_name_exist() -> None:
    texts = [rule["annotations"]["description"] for rule in rules()]
    texts += [panel["description"] for name in BOARDS for panel in panels(name)]
    named = {tuple(words.split()) for text in texts for words in re.findall(r"`tailrace ([a-z -]+)", text)}
    assert len(named) >= 5
    for noun, *verbs in named:
        command: Any = import_module(f"tailrace.cli.{noun}").command
        assert all(verb in command.commands for verb in verbs[:1]), (noun, *verbs)


def test_every_alert_has_a_case_that_raises_it() -> None:
    text = (PROMETHEUS / "alerts_test.yml").read_text(encoding="utf-8")
    raised = set(re.findall(r'alertname="(\w+)", alertstate="firing"', text))
    assert raised == {rule["alert"] for rule in rules()}


def test_the_job_is_the_one_that_rules_and_dashboards_name() -> None:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
    jobs = {job["job_name"] for job in config["scrape_configs"]}
    assert {name for text in asked().values() for name in re.findall(r'job="(\w+)"', text)} == jobs


def test_the_node_knows_the_name_by_which_it_is_scraped() -> None:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    environment = composed["services"]["tailrace"]["environment"]
    allowed = environment["TAILRACE_HTTP__ALLOWED_HOSTS"].split(",")
    (job,) = config["scrape_configs"]
    targets = [target for each in job["static_configs"] for target in each["targets"]]
    assert {target.partition(":")[0] for target in targets} <= set(allowed)


# ---- promtool


def promtool(*arguments: str) -> str:
    beside = ROOT / ".tools" / "promtool"
    found = shutil.which("promtool") or (str(beside) if beside.exists() else None)
    if found is None:
        pytest.skip("promtool is not here: it comes with Prometheus")
    done = subprocess.run(
        [found, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(PROMETHEUS / "alerts.yml"))
    promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))


def test_rules_are_raised_by_what_they_are_for_and_by_nothing_else() -> None:
    promtool("test", "rules", str(PROMETHEUS / "alerts_test.yml"))


def test_every_expression_of_the_dashboards_is_one_that_prometheus_understands(tmp_path: Path) -> None:
    texts = [text for where, text in asked().items() if ": $" not in where and not where.startswith("alert")]
    texts = [re.sub(r"\$\w+", ".*", text.replace("$__rate_interval", "5m")) for text in texts]
    recorded = [{"record": f"shown:{number}", "expr": text} for number, text in enumerate(texts)]
    path = tmp_path / "shown.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": recorded}]}), encoding="utf-8")
    assert f"{len(texts)} rules found" in promtool("check", "rules", "--lint=none", str(path))
