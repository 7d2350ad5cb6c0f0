"""`python -m bench.native`: goals, tables and page from made figures; then tiny runs with real servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.goal import judge
from bench.native.command import command, plan_of
from bench.native.contender import LOADS, RATE, STEPS, Contender, plan_contenders, redis_connections
from bench.native.goal import GOALS
from bench.native.measure import Durations, client_core, measure_step
from bench.native.run import FULL, QUICK, Plan, run
from bench.native.server import NativeTailraceServer
from bench.native.table import AGAINST, CHARTS, TITLE, as_markdown, overview
from bench.page import as_page
from bench.report import Report, read_json, write_json
from bench.server import NotHere, RedisServer
from click.testing import CliRunner

TINY_S = Durations(warm_s=0.02, seconds=0.1, latency_s=0.1)
TINY = Plan(rounds=1, durations=TINY_S, warm_up=TINY_S, idle_s=0.01)


def figures(**values: float) -> dict[str, object]:
    return {"count": 100, **values}


@pytest.fixture
def report() -> Report:
    """Tailrace twice as fast as Redis in pipelines, half as fast as NATS, and RabbitMQ not there."""
    report = Report(began="now", quick=False, machine={"cores": 2}, loads=dict(LOADS))
    report.targets = {each.name: each.title for each in plan_contenders(["redis", "nats"])}
    report.skipped = {"rabbitmq": "rabbitmq-server is not installed"}
    for target, per_s, p50_ms in (
        ("tailrace", 40_000.0, 0.3),
        ("tailrace-memory", 50_000.0, 0.1),
        ("nats", 80_000.0, 0.2),
        ("redis", 4_000.0, 0.5),
        ("redis-pipeline", 20_000.0, 9.0),
    ):
        found = {
            "publish": figures(per_s=per_s, p50_ms=1.0, p99_ms=2.0, driver_cpu=0.95),
            "deliver": figures(per_s=per_s, driver_cpu=0.5),
            "one": figures(per_s=1 / p50_ms, p50_ms=p50_ms, p99_ms=p50_ms * 2, p999_ms=p50_ms * 3),
            "latency": figures(per_s=1000.0, p50_ms=p50_ms * 4, p99_ms=p50_ms * 5),
        }
        report.add(found, target=target, server=target, round_number=1)
    report.goals = judge(report, GOALS)
    return report


# ---- goals


def test_every_goal_is_judged_against_the_peer_that_it_names(report: Report) -> None:
    met = {str(goal["text"]): (goal["value"], goal["met"]) for goal in report.goals}

    assert met["confirmed publishes/s, against Redis in pipelines of 200"] == (2.0, True)
    assert met["acknowledged deliveries/s, against NATS, which does not sync"] == (0.5, False)
    assert met["confirmed publishes/s, against RabbitMQ"] == (None, None)
    assert met["one publish waited for, p50, against Redis"] == (pytest.approx(0.6), True)
    assert met["one publish waited for, p50, against NATS, which does not sync"] == (
        pytest.approx(1.5),
        False,
    )
    assert met["publish to handler, p50, synced"] == (pytest.approx(1.2), False)
    assert met["publish to handler, p50, memory engine"] == (pytest.approx(0.4), False)


# ---- for people


def test_the_overview_has_a_row_for_everybody_and_a_dash_for_what_was_not_measured(report: Report) -> None:
    report.samples = [
        row for row in report.samples if row["target"] != "redis-pipeline" or row["load"] == "publish"
    ]
    lines = overview(report).splitlines()
    assert len(lines) == 2 + len(report.targets)
    piped = [cell.strip() for cell in lines[-1].strip("|").split("|")]
    assert piped == ["Redis Streams (synced, pipelines of 200)", "20,000", *["-"] * 6]


def test_markdown_and_page_have_goals_loads_and_what_is_missing(report: Report) -> None:
    text = as_markdown(report)
    page = as_page(report, title=TITLE, against=AGAINST, charts=CHARTS)
    for shown in (text, page):
        assert TITLE in shown
        assert "rabbitmq-server is not installed" in shown
        assert "✓" in shown and "✗" in shown and "Kafka" not in shown
    assert "busy itself, in cores: tailrace in publish (0.95)" in text
    assert "tailrace in deliver" not in text
    assert page.count("p50 latency") == 2 * 3, "a title and its label, for each load that has latencies"
    assert "<script" not in page


# ---- who is measured


def test_a_peer_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no peer is called 'kafka'"):
        plan_contenders(["redis", "kafka"])


def test_redis_is_one_server_with_two_rows() -> None:
    one, piped = plan_contenders(["redis"])[2:]
    assert one.server is piped.server
    assert (one.steps, piped.steps) == (STEPS, (RATE,))


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.native.contender.find_spec", lambda _name: None)
    ours, *_, rabbit = plan_contenders(["rabbitmq"])
    ours.find_client()
    with pytest.raises(NotHere, match=r"aio_pika is not installed.*\[bench\]"):
        rabbit.find_client()


def test_redis_has_a_connection_for_every_command_in_flight() -> None:
    assert redis_connections("publish") > 200
    assert redis_connections("latency") < 20


def test_clients_get_the_last_core_if_there_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, core in (({0, 1, 5}, 5), ({3}, None)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _pid, cores=cores: cores, raising=False)
        assert client_core() == core


# ---- the plan


def test_the_command_line_changes_the_plan() -> None:
    plan = plan_of(FULL, rounds=2, seconds=0.5)
    assert (plan.rounds, plan.durations.seconds, plan.durations.latency_s) == (2, 0.5, 0.5)
    assert plan_of(QUICK, rounds=None, seconds=None) == QUICK


def test_steps_count_what_is_told() -> None:
    contenders = plan_contenders(["redis"])
    assert TINY.steps(contenders) == 3 + 4 + 1 * (3 + 3 + 3 + 1)


# ---- real servers


@pytest.fixture
def ours() -> Contender:
    return Contender(
        name="tailrace-memory",
        title="Tailrace",
        server=NativeTailraceServer(engine="memory"),
        kind="tailrace",
    )


@pytest.mark.slow
def test_a_run_gives_figures_of_every_load_and_leaves_nothing_behind(ours: Contender, tmp_path: Path) -> None:
    class Missing(RedisServer):
        def find(self) -> None:
            raise NotHere("redis-server is not installed")

    missing = Contender(name="redis", title="Redis", server=Missing(), kind="tailrace")
    told: list[str] = []

    report = run([ours, missing], TINY, directory=tmp_path, note=told.append)

    assert report.failures == []
    assert report.skipped == {"redis": "redis-server is not installed"}
    for load in LOADS:
        assert len(report.values(load, ours.name, "per_s")) == TINY.rounds
        assert len(report.values(load, ours.name, "cpu_us")) == TINY.rounds
    assert report.value("latency", ours.name, "p50_ms") is not None
    assert len(told) == TINY.steps([ours, missing]) - 1 - TINY.rounds * len(STEPS)
    assert report.goals
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_interrupt_stops_the_servers_and_keeps_the_report(ours: Contender, tmp_path: Path) -> None:
    def note(text: str) -> None:
        if text.startswith("warming"):
            raise KeyboardInterrupt

    report = run([ours], TINY, directory=tmp_path, note=note)

    assert report.interrupted
    assert ours.name in report.servers
    with pytest.raises(AssertionError, match="not running"):
        _ = ours.server.pid
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_server_that_is_gone_is_a_failure_of_its_loads(ours: Contender, tmp_path: Path) -> None:
    ours.server.start(tmp_path)
    port, pid = ours.server.port, ours.server.pid
    ours.server.stop()

    class Gone(NativeTailraceServer):
        @property
        def pid(self) -> int:
            return pid

    server = Gone(engine="memory")
    server.port = port
    gone = Contender(name="gone", title="gone", server=server, kind="tailrace")

    found = measure_step(RATE, gone, TINY_S)

    assert "deliver" not in found
    assert "error" in found["publish"] and str(port) in str(found["publish"]["error"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["redis", "redis-pipeline", "nats", pytest.param("rabbitmq", marks=pytest.mark.heavy)]
)
def test_a_peer_takes_every_load_that_is_for_it(name: str, tmp_path: Path) -> None:
    (contender,) = [each for each in plan_contenders(["rabbitmq", "nats", "redis"]) if each.name == name]
    try:
        contender.find_client()
        contender.server.find()
        contender.server.start(tmp_path / "server")
    except NotHere as error:
        pytest.skip(str(error))
    try:
        found = [measure_step(step, contender, TINY_S) for step in contender.steps]
    finally:
        contender.server.stop()
    rows = {load: row for step in found for load, row in step.items()}
    assert {load: row.get("error") for load, row in rows.items()} == dict.fromkeys(rows)
    assert list(rows) == list(LOADS)[: 2 if name == "redis-pipeline" else 4]


# ---- the command


def test_the_command_writes_json_table_and_page(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[str], Plan]] = []

    def fake_run(contenders: list[Contender], plan: Plan, **_options: object) -> Report:
        asked.append(([each.name for each in contenders], plan))
        return report

    monkeypatch.setattr("bench.native.command.run", fake_run)
    arguments = ["--quick", "--peers", "redis, nats", "--rounds", "3", "--out", str(tmp_path)]

    found = CliRunner().invoke(command, arguments)

    assert found.exit_code == 0, found.output
    ((names, plan),) = asked
    assert names == ["tailrace", "tailrace-memory", "nats", "redis", "redis-pipeline"]
    assert (plan.rounds, plan.durations) == (3, QUICK.durations)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"native-quick.{kind}" for kind in ("json", "md", "html")
    }
    assert read_json(tmp_path / "native-quick.json") == report
    assert "rabbitmq-server is not installed" in found.output


def test_an_interrupted_run_is_written_and_ends_as_such(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report.interrupted = True
    monkeypatch.setattr("bench.native.command.run", lambda *_args, **_options: report)

    found = CliRunner().invoke(command, ["--out", str(tmp_path)])

    assert found.exit_code == 130
    assert "interrupted" in (tmp_path / "native.md").read_text()


def test_rendering_again_gives_the_same(report: Report, tmp_path: Path) -> None:
    write_json(report, tmp_path / "native.json")

    found = CliRunner().invoke(command, ["--render", str(tmp_path / "native.json"), "--out", str(tmp_path)])

    assert found.exit_code == 0
    assert (tmp_path / "native.md").read_text() == as_markdown(report)


def test_an_unknown_peer_is_a_usage_error() -> None:
    found = CliRunner().invoke(command, ["--peers", "kafka"])
    assert found.exit_code == 2 and "no peer is called 'kafka'" in found.output
