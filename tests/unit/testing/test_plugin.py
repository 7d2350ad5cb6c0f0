"""The pytest plugin: runs of pytest inside this one, with its fixtures and without."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

# An installed Tailrace brings its plugin along; one that is only on the path does not.
INSTALLED = any(each.value == "tailrace.testing.plugin" for each in entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "tailrace.testing.plugin")


@pytest.fixture(autouse=True)
def _warnings_are_errors(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfilterwarnings = error\n")


def run(pytester: pytest.Pytester, code: str, *args: str) -> pytest.RunResult:
    pytester.makepyfile(code)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *args, timeout=120)


def test_the_broker_serves_the_whole_run_and_topics_are_fresh(pytester: pytest.Pytester) -> None:
    code = """
        seen = []

        def note(broker, topic):
            broker.produce(topic, b"v")
            assert [record.offset for record in broker.read(topic)] == [0]
            seen.append((id(broker), topic))

        def test_first(tailrace_broker, tailrace_topic):
            note(tailrace_broker, tailrace_topic)

        def test_second(tailrace_broker, tailrace_topic):
            note(tailrace_broker, tailrace_topic)

        def test_one_broker_and_two_topics():
            assert len({broker for broker, _ in seen}) == 1
            assert len({topic for _, topic in seen}) == 2
    """
    run(pytester, code, *PLUGIN).assert_outcomes(passed=3)


def test_clients_connect_to_the_address(pytester: pytest.Pytester) -> None:
    code = """
        import socket

        def test_connect(tailrace_bootstrap_servers, tailrace_broker):
            assert tailrace_bootstrap_servers == tailrace_broker.bootstrap_servers
            host, _, port = tailrace_bootstrap_servers.rpartition(":")
            socket.create_connection((host, int(port)), timeout=60).close()
    """
    run(pytester, code, *PLUGIN).assert_outcomes(passed=1)


def test_a_topic_is_named_for_its_test_whatever_that_is_called(pytester: pytest.Pytester) -> None:
    code = """
        import pytest

        @pytest.mark.parametrize("name", ["a b/c", "..", "x" * 300, "\\u00e9"])
        def test_name(tailrace_broker, tailrace_topic, name):
            assert tailrace_topic.startswith("test_name-")
            tailrace_broker.produce(tailrace_topic, b"v")
    """
    run(pytester, code, *PLUGIN).assert_outcomes(passed=4)


def test_a_run_that_does_not_ask_imports_no_broker(pytester: pytest.Pytester) -> None:
    code = """
        import sys

        def test_nothing():
            heavy = ("tailrace.server", "tailrace.broker", "uvloop")
            assert not [name for name in sys.modules if name.startswith(heavy)]
    """
    run(pytester, code, *PLUGIN).assert_outcomes(passed=1)
