"""Curves of cost against size: what is chosen, what is sent, and what becomes of a point; nothing is run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.command import plan_measured
from bench.load import LOADS, WIRE
from bench.measure import Durations
from bench.report import Report, Row
from bench.run import FULL, QUICK, run
from bench.scaling import CURVES, Curve, Figure, plan_curves, run_curves
from bench.scaling import run as running
from bench.scaling.bed import Bed
from bench.scaling.curve import binary_label, count_label, decimal_label
from bench.scaling.log_size import check_room, dated_frames
from bench.scaling.partitions import shares, spread_ring
from bench.scaling.remarks import REMARKS
from bench.scaling.run import count_points
from bench.server import NotHere

from tailrace.bench.wire import LoadError
from tailrace.bench.wire.kafka import batch_bytes, one_record, produce_ring
from tailrace.records import validate_batch
from tailrace.wire.kafka import read_produce_request, read_request_header

DURATIONS = Durations(warm_s=0.0, seconds=0.05, client_s=0.0, latency_s=0.0)


def test_every_curve_has_its_own_name_a_remark_and_ascending_sizes() -> None:
    names = [curve.name for curve in CURVES]

    assert sorted(names) == sorted(set(names)) == sorted(REMARKS)
    for curve in CURVES:
        for sizes in (curve.sizes, curve.quick_sizes):
            assert list(sizes) == sorted(set(sizes)) and len(sizes) > 1
        assert len({figure.key for figure in curve.figures}) == len(curve.figures)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), [curve.name for curve in CURVES]),
        (("scaling",), [curve.name for curve in CURVES]),
        (("scaling-groups", "scaling-part"), ["partitions", "groups"]),
        (("scaling-con",), ["connections", "consumers"]),
    ],
)
def test_curves_are_chosen_by_the_beginnings_of_their_names(words: tuple[str, ...], names: list[str]) -> None:
    assert [curve.name for curve in plan_curves(words)] == names


def test_an_unknown_curve_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match="'scaling-moons'; there are scaling, scaling-partitions"):
        plan_curves(["scaling", "scaling-moons"])


def test_without_words_there_are_loads_and_curves() -> None:
    assert plan_measured((), quick=False) == (list(LOADS), list(CURVES))


def test_words_for_curves_leave_the_loads_out_and_the_reverse() -> None:
    assert plan_measured(("scaling",), quick=True) == ([], list(CURVES))
    assert plan_measured(("wire",), quick=True) == (list(WIRE), [])
    loads, curves = plan_measured(("unbatched", "scaling-groups"), quick=True)
    assert ([load.name for load in loads], [curve.name for curve in curves]) == (["unbatched"], ["groups"])


def test_curves_alone_are_counted_without_peers() -> None:
    (groups,) = plan_curves(["scaling-groups"])

    assert FULL.steps([], [], [groups]) == len(groups.sizes)
    assert QUICK.steps([], [], [groups]) == len(groups.quick_sizes)
    assert FULL.steps([WIRE[0]], [], [groups]) == 1 + len(groups.sizes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (count_label(5_000), "5,000"),
        (decimal_label(1_000), "1 KB"),
        (decimal_label(10_000_000), "10 MB"),
        (binary_label(64 << 20), "64 MiB"),
        (binary_label(10 << 30), "10 GiB"),
        (binary_label(5), "5 B"),
    ],
)
def test_sizes_are_told_in_their_units(text: str, expected: str) -> None:
    assert text == expected


# ---- what is sent


@pytest.mark.parametrize("partitions", [1, 7, 16, 17, 1_000])
def test_every_partition_is_somebodys_and_nobody_is_without(partitions: int) -> None:
    found = shares(partitions, 16)

    assert len(found) == 16 and all(found)
    assert {each for share in found for each in share} == set(range(partitions))


def test_a_ring_goes_through_its_partitions_in_turn() -> None:
    ring = spread_ring(one_record(100), topic="t", partitions=[3, 200_000, 5])

    asked = []
    for place in range(ring.count):
        frame = memoryview(ring.data)[place * ring.request_bytes :][: ring.request_bytes][4:]
        header, body = read_request_header(frame)
        assert header.correlation_id == place
        request = read_produce_request(body, header.api_version)
        asked.append(request.topics[0].partitions[0].index)
    assert asked == [3, 200_000, 5] * (ring.count // 3) and ring.count >= 64


def test_batches_of_a_log_are_sound_and_a_second_apart() -> None:
    batch = batch_bytes(10_000)
    ring = produce_ring(batch, topic="t", partition=0, in_flight=2)
    request = ring.data[: ring.request_bytes]

    seen = []
    for frame in dated_frames(request, len(batch), batches=3, places=2, first_ms=5_000):
        header, body = read_request_header(memoryview(bytes(frame))[4:])
        records = read_produce_request(body, header.api_version).topics[0].partitions[0].records
        assert records is not None
        found = validate_batch(bytearray(records), bytes_max=len(batch))
        seen.append((header.correlation_id, found.base_timestamp, found.max_timestamp))

    assert seen == [(0, 5_000, 5_000), (1, 6_000, 6_000), (0, 7_000, 7_000)]


def test_a_log_that_the_disk_has_no_room_for_is_refused(tmp_path: Path) -> None:
    check_room(tmp_path, 1)
    with pytest.raises(LoadError, match="must be free for it"):
        check_room(tmp_path, 1 << 60)


# ---- what becomes of a point


def curve_of(measured: dict[int, Row | BaseException]) -> Curve:
    def measure(_bed: Bed, size: int) -> Row:
        found = measured[size]
        if isinstance(found, BaseException):
            raise found
        return found

    figures = (Figure(key="a", title="A", unit="ms"), Figure(key="b", title="B", unit="ms"))
    sizes = tuple(measured)
    return Curve(
        name="c", title="C", x="things", figures=figures, sizes=sizes, quick_sizes=sizes[:1], measure=measure
    )


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @contextmanager
    def open_nothing(directory: Path, durations: Durations) -> Iterator[None]:
        del directory, durations
        yield None

    monkeypatch.setattr(running, "open_bed", open_nothing)


def run_one(curve: Curve, directory: Path, *, quick: bool = False) -> tuple[Report, list[str]]:
    report = Report(began="", quick=quick, machine={})
    steps: list[str] = []
    run_curves([curve], DURATIONS, report, directory=directory, note=steps.append, save=lambda _report: None)
    assert len(steps) == count_points([curve], quick=quick)
    return report, steps


@pytest.mark.usefixtures("no_server")
def test_a_point_keeps_the_figures_of_its_curve(tmp_path: Path) -> None:
    curve = curve_of({1: {"a": 1.0, "b": None, "other": 9}, 2_000: {"a": 2.0, "b": 3.0}})

    report, steps = run_one(curve, tmp_path)

    (row,) = report.scaling
    assert row["points"] == [
        {"x": 1, "label": "1", "a": 1.0},
        {"x": 2_000, "label": "2,000", "a": 2.0, "b": 3.0},
    ]
    assert row["missing"] == []
    assert steps == ["scaling-c: 1", "scaling-c: 2,000"]


@pytest.mark.usefixtures("no_server")
@pytest.mark.parametrize(
    "error", [LoadError("no answer"), NotHere("it ended"), OSError(28, "No space left on device")]
)
def test_a_point_that_fails_leaves_its_reason_and_the_others_go_on(error: Exception, tmp_path: Path) -> None:
    report, _ = run_one(curve_of({1: {"a": 1.0}, 10: error, 100: {"a": 2.0}}), tmp_path)

    (row,) = report.scaling
    assert [point["x"] for point in row["points"]] == [1, 100]  # type: ignore[attr-defined]
    assert row["missing"] == [{"x": 10, "label": "10", "why": str(error)}]


@pytest.mark.usefixtures("no_server")
def test_a_size_that_could_not_be_reached_is_told_beside_the_one_that_was(tmp_path: Path) -> None:
    report, _ = run_one(curve_of({10: {"a": 1.0, "x": 7, "why": "no more files"}}), tmp_path)

    (row,) = report.scaling
    assert row["points"] == [{"x": 7, "label": "7", "a": 1.0}]
    assert row["missing"] == [{"x": 10, "label": "10", "why": "no more files; 7 were measured instead"}]


@pytest.mark.usefixtures("no_server")
def test_a_quick_run_takes_the_quick_sizes(tmp_path: Path) -> None:
    report, _ = run_one(curve_of({1: {"a": 1.0}, 10: {"a": 2.0}}), tmp_path, quick=True)

    assert [point["x"] for point in report.scaling[0]["points"]] == [1]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("no_server")
def test_an_interrupt_keeps_the_points_before_it(tmp_path: Path) -> None:
    curve = curve_of({1: {"a": 1.0}, 10: KeyboardInterrupt(), 100: {"a": 3.0}})

    report = run([], [], FULL, directory=tmp_path, note=lambda _step: None, curves=[curve])

    assert report.interrupted
    assert report.scaling[0]["points"] == [{"x": 1, "label": "1", "a": 1.0}]
    assert report.goals == [] and report.servers == {}
    assert list(tmp_path.iterdir()) == []
