"""One sentence about a node: healthy, degraded or unhealthy, and which resource it is that limits it. Pure.

    problem in any check    unhealthy    it does not serve, or not all of it
    warning in any check    degraded     it serves, and something is about to run out or falls behind
    else                    healthy

The checks stand in the order of what matters first; the first of the worst ones makes the sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tailrace.broker.health.figures import Figures
from tailrace.broker.health.finding import (
    Finding,
    Status,
    judge_descriptors,
    judge_free_space,
    judge_share,
    room_s,
)
from tailrace.broker.health.words import counted, long_duration, short_number
from tailrace.model import TopicPartition
from tailrace.model.text import size_of

Health = Literal["healthy", "degraded", "unhealthy"]
Limit = Literal["disk", "cpu", "memory", "connections", "descriptors", "lag", "none"]

LOOP_LAG_MS_FULL = 100.0  # on a core that is full: it will not get better by itself
LOOP_LAG_MS_WARNING = 500.0  # else: once may be anything
LOOP_LAG_MS_PROBLEM = 5_000.0  # clients give up
CPU_SHARE_FULL = 0.9
FLUSH_MS_WARNING = 500.0
LAG_MIN = 10_000  # fewer records than that are a moment's work
LAG_GROWTH = 1.2  # within the span
_SHOWN_MAX = 3  # partitions that are named

_HEALTH: tuple[tuple[Status, Health], ...] = (("problem", "unhealthy"), ("warning", "degraded"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """How a node is."""

    status: Health
    limit: Limit
    summary: str
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """A finding, the resource that it is about, and what the sentence would say of it."""

    finding: Finding
    limit: Limit
    sentence: str = ""


def diagnose(figures: Figures) -> Diagnosis:
    """What the figures mean."""
    checks = list(_checks(figures))
    findings = [each.finding for each in checks]
    for status, health in _HEALTH:
        bad = [each for each in checks if each.finding.status == status]
        if bad:
            others = sum(each.finding.status != "ok" for each in checks) - 1
            summary = f"{health.capitalize()}: {bad[0].sentence or bad[0].finding.found}."
            summary += f" {counted(others, 'more finding')}." if others else ""
            return Diagnosis(status=health, limit=bad[0].limit, summary=summary, findings=findings)
    return Diagnosis(status="healthy", limit="none", summary=_all_is_well(figures), findings=findings)


def _checks(figures: Figures) -> Iterator[_Check]:
    yield _check_broker(figures)
    yield _check_offline(figures)
    yield from _check_damage(figures)
    yield from _check_clock(figures)
    yield from _check_storage(figures)
    yield from _check_disk(figures)
    yield from _check_memory(figures)
    yield from _check_descriptors(figures)
    yield from _check_connections(figures)
    yield from _check_loop(figures)
    yield _check_replicas(figures)
    yield from _check_lag(figures)


def _all_is_well(figures: Figures) -> str:
    rate = figures.records_in_per_s
    if rate is None:
        begin = ""
    else:
        begin = f"{short_number(rate)} records/s in" if rate >= 0.5 else "nothing comes in now"
    room = _room_text(figures)
    return f"Healthy: {', '.join(filter(None, (begin, room))) or 'every check is good'}."


def _room_text(figures: Figures) -> str:
    free = figures.disk_free_bytes
    if free is None:
        return ""
    room = room_s(
        free, least_bytes=figures.disk_free_bytes_min, growth_bytes_per_s=figures.disk_growth_bytes_per_s
    )
    if room is None:
        return f"the disk has {size_of(free)} free"
    return f"the disk has room for {long_duration(room)} at this rate"


# ---- the checks


def _check_broker(figures: Figures) -> _Check:
    if figures.failure is None:
        return _Check(finding=Finding(check="broker", status="ok", found="serves"), limit="none")
    finding = Finding(
        check="broker",
        status="problem",
        found=f"failed: {figures.failure}",
        advice="Mend the cause and start it again: what was acknowledged is in the log",
    )
    limit: Limit = "disk" if figures.is_storage_failure else "none"
    return _Check(finding=finding, limit=limit, sentence=f"the broker failed: {figures.failure.rstrip('.')}")


def _check_offline(figures: Figures) -> _Check:
    count = figures.partitions_offline
    if not count:
        return _Check(finding=Finding(check="partitions", status="ok", found="all are served"), limit="none")
    found = f"{counted(count, 'partition')} cannot be read or written"
    advice = "Their log could not be opened, or no node leads them: the broker's log says which, and why"
    if figures.quarantined:
        found += f", {counted(len(figures.quarantined), 'topic')} quarantined"
        advice = figures.quarantined[0]
    return _Check(
        finding=Finding(check="partitions", status="problem", found=found, advice=advice), limit="none"
    )


def _check_damage(figures: Figures) -> Iterator[_Check]:
    damaged = figures.partitions_damaged
    if damaged:
        yield _Check(
            finding=Finding(
                check="damage", status="problem", found=damage_text(damaged), advice=_way_out(damaged[0])
            ),
            limit="none",
        )


def damage_text(damaged: Sequence[TopicPartition]) -> str:
    """Which partitions take no appends, and why."""
    shown = ", ".join(map(str, damaged[:_SHOWN_MAX])) + (", ..." if len(damaged) > _SHOWN_MAX else "")
    verb = "takes" if len(damaged) == 1 else "take"
    return f"{counted(len(damaged), 'partition')} {verb} no appends, because records are damaged: {shown}"


def _way_out(damaged: TopicPartition) -> str:
    return (
        "Restore a backup; or copy what is readable elsewhere and give up all records of the partition: "
        f"tailrace topic purge {damaged.topic} --partition {damaged.partition}"
    )


def clock_text(ahead_ms: int) -> str:
    """What a clock that is not believed means."""
    ahead = long_duration(ahead_ms / 1000)
    return f"the clock is {ahead} ahead of when this node last ran, so nothing expires by it"


def _check_clock(figures: Figures) -> Iterator[_Check]:
    if figures.clock_ahead_ms:
        ahead = long_duration(figures.clock_ahead_ms / 1000)
        yield _Check(
            finding=Finding(
                check="clock",
                status="warning",
                found=f"it was {ahead} past the last time this node ran: nothing expires by it",
                advice="Set the clock right and start again; if it is right, stop the broker and run: "
                "tailrace storage confirm-clock DIR",
            ),
            limit="none",
            sentence=clock_text(figures.clock_ahead_ms),
        )


def _check_storage(figures: Figures) -> Iterator[_Check]:
    if figures.storage_trouble:
        yield _Check(
            finding=Finding(
                check="storage",
                status="problem",
                found=figures.storage_trouble,
                advice="Producers wait, and then get an error that they retry. Bring the server back: the "
                "broker goes on by itself",
            ),
            limit="disk",
            sentence=figures.storage_trouble,
        )


def _check_disk(figures: Figures) -> Iterator[_Check]:
    free, least = figures.disk_free_bytes, figures.disk_free_bytes_min
    if free is not None:
        finding = judge_free_space(
            free,
            least_bytes=least,
            growth_bytes_per_s=figures.disk_growth_bytes_per_s,
            refusal=figures.write_refusal,
        )
        if finding.status == "problem":
            sentence = f"the disk is full: writes are refused, {size_of(free)} are free"
        else:
            sentence = _room_text(figures)
        yield _Check(finding=finding, limit="disk", sentence=sentence)
    flush_ms = figures.flush_p99_ms
    if flush_ms is not None:
        slow = flush_ms >= FLUSH_MS_WARNING
        yield _Check(
            finding=Finding(
                check="flush latency",
                status="warning" if slow else "ok",
                found=f"p99 {flush_ms:.1f} ms",
                advice="Producers wait this long. Use a faster disk, or leave it to fewer writers"
                if slow
                else "",
            ),
            limit="disk",
            sentence=f"the disk is slow: a flush takes {flush_ms:.0f} ms",
        )


def _check_memory(figures: Figures) -> Iterator[_Check]:
    used, most = figures.memory_bytes, figures.memory_bytes_max
    if used is None:
        return
    status: Status = "ok" if not most else judge_share(used / most)
    found = size_of(used) + (f" of {size_of(most)}" if most else "")
    advice = (
        "Give the process more, or keep less there: fewer connections, smaller topics if the log is in memory"
    )
    yield _Check(
        finding=Finding(check="memory", status=status, found=found, advice=advice if status != "ok" else ""),
        limit="memory",
        sentence=f"memory is short: {found} are in use",
    )


def _check_descriptors(figures: Figures) -> Iterator[_Check]:
    if figures.descriptors is None:
        return
    finding = judge_descriptors(soft=figures.descriptors_max, hard=None, used=figures.descriptors)
    yield _Check(
        finding=finding, limit="descriptors", sentence=f"file descriptors are short: {finding.found}"
    )


def _check_connections(figures: Figures) -> Iterator[_Check]:
    most = figures.connections_max
    if not figures.connections or not most:
        return
    listener, count = max(figures.connections.items(), key=lambda each: each[1])
    status = judge_share(count / most)
    listed = ", ".join(f"{name} {number:,}" for name, number in sorted(figures.connections.items()))
    yield _Check(
        finding=Finding(
            check="connections",
            status=status,
            found=f"{listed}, of {most:,} each",
            advice="More are refused at the bound. Raise max.connections, or let clients share connections"
            if status != "ok"
            else "",
        ),
        limit="connections",
        sentence=f"the {listener} listener has {count:,} of at most {most:,} connections",
    )


def _check_loop(figures: Figures) -> Iterator[_Check]:
    """A core that is full is no trouble as long as nobody waits for it: the lag of the loop decides."""
    lag_ms, share = figures.loop_lag_ms, figures.cpu_share
    if share is not None:
        finding = Finding(check="cpu", status="ok", found=f"{share:.0%} of a core")
        yield _Check(finding=finding, limit="cpu")
    if lag_ms is None:
        return
    full = share is not None and share >= CPU_SHARE_FULL
    status: Status = "ok"
    if lag_ms >= (LOOP_LAG_MS_FULL if full else LOOP_LAG_MS_WARNING):
        status = "problem" if lag_ms >= LOOP_LAG_MS_PROBLEM else "warning"
    cause = "one core is full" if full else "something else keeps it from running"
    advice = "Larger batches and fewer requests cost less; more than one core needs more nodes"
    if not full:
        advice = "Look at what else runs on this machine, and at calls that block in an embedding program"
    yield _Check(
        finding=Finding(
            check="event loop",
            status=status,
            found=f"waits {lag_ms:.0f} ms" if lag_ms >= 1 else "waits less than 1 ms",
            advice=advice if status != "ok" else "",
        ),
        limit="cpu",
        sentence=f"the event loop waits {lag_ms:.0f} ms: {cause}",
    )


def _check_replicas(figures: Figures) -> _Check:
    count = figures.partitions_under_replicated
    finding = Finding(check="replicas", status="ok", found="all are in sync")
    if count:
        finding = Finding(
            check="replicas",
            status="warning",
            found=f"{counted(count, 'partition')} with a replica that is not in sync",
            advice="See which nodes are down or slow: GET /api/v1/cluster",
        )
    return _Check(finding=finding, limit="none")


def _check_lag(figures: Figures) -> Iterator[_Check]:
    lag, before = figures.lag, figures.lag_before
    if lag is None:
        return
    grows = before is not None and lag >= LAG_MIN and lag >= before * LAG_GROWTH
    found = f"{short_number(lag)} records wait"
    if grows and before is not None:
        found += f", {short_number(lag - before)} more than {long_duration(figures.lag_span_s)} ago"
    yield _Check(
        finding=Finding(
            check="lag",
            status="warning" if grows else "ok",
            found=found,
            advice="Add consumers to the group that is behind, up to one for each partition" if grows else "",
        ),
        limit="lag",
        sentence=f"consumers fall behind: {found}",
    )
