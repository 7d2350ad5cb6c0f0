"""What a run found. The keys of its JSON are read by scripts, so they stay.

{
  "began", "took_s", "quick", "interrupted", "machine": {...},
  "servers": {name: {"version", "ready_s": [...], "idle_rss_mb", "idle_cpu", "loaded_rss_mb"}},
  "skipped": {name: why},
  "ceiling": {...},                          what the generator reaches against a handler that does nothing
  "targets": {name: title}, "loads": {name: title},
  "samples": [{"load", "target", "round", ...figures}],
  "failures": [{"load", "target", "round", "why"}],
  "unsupported": [{"load", "target", "why"}],
  "goals": [{"text", "value", "bound", "met"}],
  "scaling": [{...}]                         cost against size, one for each curve: see bench.scaling.curve
}

Figures of a sample: per_s, mb_per_s, p50_ms, p99_ms, p999_ms, max_ms, cpu_us (of the server, per request or
record), cpu_ms_per_mb, rss_mb, driver_cpu (cores that the generator used). A figure of the report is the
median of its rounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

Row = dict[str, object]


@dataclass(slots=True, kw_only=True)
class ServerFacts:
    """A server before and besides the loads."""

    version: str
    ready_s: list[float] = field(default_factory=list)
    idle_rss_mb: float | None = None
    idle_cpu: float | None = None
    loaded_rss_mb: float | None = None  # the most that was seen at the end of a load


@dataclass(slots=True, kw_only=True)
class Report:
    """Grows while the run goes on."""

    began: str
    quick: bool
    machine: Row
    took_s: float = 0.0
    interrupted: bool = False
    servers: dict[str, ServerFacts] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    ceiling: Row = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    loads: dict[str, str] = field(default_factory=dict)
    samples: list[Row] = field(default_factory=list)
    failures: list[Row] = field(default_factory=list)
    unsupported: list[Row] = field(default_factory=list)
    goals: list[Row] = field(default_factory=list)
    scaling: list[Row] = field(default_factory=list)

    def add(self, found: Mapping[str, Row], *, target: str, server: str, round_number: int) -> None:
        """The figures of one measurement, or why there are none."""
        for load, row in found.items():
            where: Row = {"load": load, "target": target, "round": round_number}
            if "unsupported" in row:
                self.unsupported.append({"load": load, "target": target, "why": row["unsupported"]})
            elif "error" in row:
                self.failures.append({**where, "why": row["error"]})
            else:
                self.samples.append({**where, **row})
                self._note_memory(server, row)

    def _note_memory(self, server: str, row: Row) -> None:
        facts, seen = self.servers.get(server), number(row.get("rss_mb"))
        if facts is not None and seen is not None:
            facts.loaded_rss_mb = max(facts.loaded_rss_mb or 0.0, seen)

    def values(self, load: str, target: str, figure: str) -> list[float]:
        """A figure, round by round."""
        rows = (row for row in self.samples if row["load"] == load and row["target"] == target)
        return [value for row in rows if (value := number(row.get(figure))) is not None]

    def value(self, load: str, target: str, figure: str) -> float | None:
        """A figure: the median of its rounds; None if it was not measured."""
        return middle(self.values(load, target, figure))

    def fact(self, server: str, name: str) -> float | None:
        """A fact of a server; the median where it was measured several times."""
        facts = self.servers.get(server)
        if facts is None:
            return None
        found = getattr(facts, name)
        return middle(found) if isinstance(found, list) else found

    def as_row(self) -> Row:
        return asdict(self)


def number(value: object) -> float | None:
    """A JSON number; None for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return None


def rows_of(value: object) -> list[Row]:
    """A JSON list of objects; nothing for anything else."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def growth(curve: Row, key: str) -> float | None:
    """A figure of a curve: the last that was measured over the first; None without two of them."""
    seen = [value for point in rows_of(curve["points"]) if (value := number(point.get(key))) is not None]
    return seen[-1] / seen[0] if len(seen) > 1 and seen[0] else None


def middle(values: Iterable[float]) -> float | None:
    """The median; None of nothing."""
    seen = list(values)
    return median(seen) if seen else None


def write_json(report: Report, path: Path) -> None:
    """Put the whole file into place at once."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(json.dumps(report.as_row(), indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)


def read_json(path: Path) -> Report:
    """A report that was written before."""
    row = json.loads(path.read_text(encoding="utf-8"))
    servers = {name: ServerFacts(**facts) for name, facts in row.pop("servers").items()}
    return Report(servers=servers, **row)
