"""README's tables: made from a report, put between the marks, and equal to what the kept results say."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.readme import BEGIN, END, put_tables, readme_tables, update_readme
from bench.report import Report, ServerFacts, read_json

ROOT = Path(__file__).parents[3]


def report_with(*targets: str) -> Report:
    report = Report(
        began="2026-01-02 03:04 UTC", quick=False, machine={"cpu": "X", "cores": 2, "file_system": "ext4"}
    )
    report.targets = {target: target for target in targets}
    for target in targets:
        row: dict[str, object] = {"count": 1, "per_s": 12_345.0, "p50_ms": 1.5, "p99_ms": 2.5}
        for load in ("producers-1", "producers-16", "unbatched"):
            report.add({load: dict(row)}, target=target, server=target, round_number=1)
    return report


def test_a_table_has_a_column_for_each_server_that_was_there() -> None:
    text = readme_tables(report_with("tailrace", "tailrace-os", "kafka", "kafka-durable"))
    assert "| Tailrace |" in text and "Kafka |" in text
    assert "Redis Streams |" not in text
    assert "12,345" in text


def test_a_load_that_was_not_measured_shows_a_dash() -> None:
    text = readme_tables(report_with("tailrace", "tailrace-os"))
    (line,) = [line for line in text.splitlines() if line.startswith("| produce 1 MB")]
    assert line.replace(" ", "") == "|produce1MB:MB/s|-|"


def test_memory_and_start_are_told_beside_kafka() -> None:
    report = report_with("tailrace", "tailrace-os", "kafka")
    for name, rss in (("tailrace", 40.0), ("tailrace-os", 41.0), ("kafka", 400.0)):
        facts = ServerFacts(version="1", ready_s=[1.0], idle_rss_mb=rss, loaded_rss_mb=2 * rss)
        report.servers[name] = facts
    assert "40.0 MB idle (400 MB), 82.0 MB after all loads (800 MB)" in readme_tables(report)


def test_only_what_stands_between_the_marks_is_replaced(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    update_readme(readme, report_with("tailrace"))
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN}\n") and text.endswith(f"{END}\nafter\n")
    assert "old" not in text and "12,345" in text


@pytest.mark.parametrize("text", ["no marks", f"{BEGIN} alone", f"{END} alone"])
def test_a_readme_without_its_marks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no place for the tables"):
        put_tables(text, report_with("tailrace"))


def test_the_tables_of_this_readme_are_those_of_the_kept_results() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    report = read_json(ROOT / "bench/results/peers.json")
    assert put_tables(text, report) == text, (
        "make them again: python -m bench --render bench/results/peers.json --readme README.md"
    )
    assert not report.quick and not report.interrupted
