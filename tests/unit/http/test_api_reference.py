"""The API reference: its examples are run against a node, and its tables compared with the program."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from urllib.request import Request, urlopen

import msgspec
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.document import ROOT, Caller, broken_links, examples, running_node

import tailrace
from tailrace.client.kafka import KafkaClient
from tailrace.http import HttpConfig
from tailrace.http.error import STATUS
from tailrace.http.operation import JSON, Operation
from tailrace.http.table import OPERATIONS
from tailrace.spark.pipelines.run_topic import ensure_topic, write_entries
from tailrace.wire.json.run_record import new_run, run_key, write_record

PAGE = ROOT / "docs" / "api-reference.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = examples(TEXT)


def between(marker: str) -> str:
    """What stands between a marker and the next end."""
    return TEXT.partition(f"<!-- {marker} -->\n")[2].partition("<!-- end -->")[0]


# ---- examples


MISSING: dict[str, object] = {"offsets": {"orders": {"0": 18}}, "missing_offsets": {"orders": {"0": 8}}}


def tell_of_a_run(kafka_port: int, *, progress: dict[str, object] | None = None) -> None:
    """As a pipeline does that runs somewhere: the page shows one."""
    at = datetime.now(UTC)
    run = new_run(pipeline="archive", name="nightly", config={"topic": ["orders"], "to": "./lake"})
    run = msgspec.structs.replace(run, id="nightly-9f2c", host="worker-1", pid=4711, started_at=at, at=at)
    run = msgspec.structs.replace(run, progress=progress)

    async def write() -> None:
        async with KafkaClient(f"127.0.0.1:{kafka_port}", client_id="test") as client:
            await ensure_topic(client)
            await write_entries(client, [(run_key(run.id), write_record(run))])

    asyncio.run(write())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_example_answers_what_the_page_shows(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text('[security]\naudit = "on"\n')
    with running_node(tmp_path) as ports:
        caller = Caller(tmp_path, ports)
        for example in EXAMPLES:
            if "/pipelines" in example.text:
                tell_of_a_run(ports["kafka"])
            caller.play(example)


def requests() -> Iterator[tuple[str, str]]:
    """Method and path of every curl command of the page."""
    for example in EXAMPLES:
        for command in re.split(r"\bcurl ", example.text)[1:]:
            (path,) = re.findall(r"http://localhost:8080(/[^\s'?]*)", command)
            method = re.search(r"-X (\w+)", command)
            sends = re.search(r"--json|--data-binary", command)
            yield method[1] if method else "POST" if sends else "GET", path


def test_every_operation_has_an_example() -> None:
    shown = list(requests())
    missing = [
        f"{each.method} {each.path}"
        for each in OPERATIONS
        if not each.deprecated
        and not any(
            method == each.method and re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", each.path), path)
            for method, path in shown
        )
    ]
    assert missing == []


# ---- tables


def operations_table(operations: Iterable[Operation]) -> str:
    """All operations by tag, as the page lists them; older paths are in the table of names."""
    rows = ["| | | |", "|---|---|---|"]
    listed = [each for each in operations if not each.deprecated]
    for tag, of_tag in groupby(sorted(listed, key=lambda each: each.tag), key=lambda each: each.tag):
        for number, each in enumerate(of_tag):
            path = each.path.replace(":path}", "}")
            rows.append(f"| {'' if number else tag} | `{each.method} {path}` | {each.summary} |")
    return "\n".join(rows) + "\n"


def test_the_list_of_operations_is_the_table_of_the_program() -> None:
    assert between("operations") == operations_table(OPERATIONS)


def metrics_table(families: Iterable[Metric]) -> str:
    """Our metrics and kafka_exporter's, with the labels that they have on a node with some of everything."""
    rows = ["| metric | type | by | |", "|---|---|---|---|"]
    for family in sorted(families, key=lambda each: each.name):
        if not family.name.startswith(("tailrace_", "kafka_")):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        by = ", ".join(f"`{label}`" for label in sorted(labels))
        rows.append(f"| `{name}` | {family.type} | {by} | {family.documentation} |")
    return "\n".join(rows) + "\n"


def ask(url: str, body: str = "", *, method: str = "GET") -> str:
    headers = {"content-type": JSON}
    with urlopen(Request(url, data=body.encode() or None, headers=headers, method=method)) as answer:
        return str(answer.read().decode())


def families_of_a_busy_node() -> list[Metric]:
    with tailrace.Broker(http_port=0) as broker:
        root = f"http://{broker.http_address}"
        broker.produce("orders", b"one")
        ask(
            f"{root}/api/v1/consumer-groups/g/offsets",
            '{"to": "earliest", "topics": ["orders"]}',
            method="PUT",
        )
        ask(f"{root}/api/v1/subscriptions", '{"name": "s", "topic": "orders"}', method="POST")
        tell_of_a_run(int(broker.bootstrap_servers.rpartition(":")[2]), progress=MISSING)
        return list(text_string_to_metric_families(ask(f"{root}/metrics?partitions=true")))


def test_the_list_of_metrics_is_what_a_node_exports() -> None:
    assert between("metrics") == metrics_table(families_of_a_busy_node())


def test_every_error_code_is_listed_with_its_status() -> None:
    told = dict(re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|", TEXT, re.MULTILINE))
    assert told == {str(code): str(status) for code, status in STATUS.items()}


def test_the_bounds_are_those_of_the_program() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|.*\| ([\d, ]+) \|$", TEXT, re.MULTILINE)
    told = {
        name: float(value)
        for names, values in rows
        for name, value in zip(re.findall(r"\w+", names), values.split(","), strict=True)
    }
    assert len(told) >= 15
    assert told == {name: float(getattr(HttpConfig(), name)) for name in told}


def test_links_lead_somewhere() -> None:
    assert broken_links(PAGE) == []
