"""Configuration, with real files and made-up environments: what wins, what is refused, and how it is said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tailrace.model import ConfigError
from tailrace.server.config import ServerConfig
from tailrace.server.configuration import Configuration, check_file, read_config
from tailrace.server.listener import is_loopback
from tailrace.server.setting import settings
from tailrace.storage.api import COMMIT, OS, Fsync


def config_file(directory: Path, text: str) -> Path:
    path = directory / "tailrace.toml"
    path.write_text(text, encoding="utf-8")
    return path


def read(
    directory: Path,
    text: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Configuration:
    if text is not None:
        config_file(directory, text)
    return read_config(flags=flags, environment=environment or {}, directory=directory)


def refusal(directory: Path, text: str | None = None, **given: Mapping[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        read(directory, text, **given).server()
    return str(caught.value)


def test_without_anything_the_defaults_are_in_force(tmp_path: Path) -> None:
    configuration = read(tmp_path)
    assert configuration.file is None
    assert {given.source for given in configuration.values.values()} == {"default"}
    assert configuration.server() == ServerConfig(data_dir=Path("tailrace-data"), http_port=8080)


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(tmp_path: Path) -> None:
    file = "[server]\nkafka_port = 1\nhost = 'localhost'\n[log]\nlevel = 'debug'\n"
    environment = {"TAILRACE_SERVER__KAFKA_PORT": "2", "TAILRACE_SERVER__HOST": "127.0.0.2"}
    configuration = read(tmp_path, file, environment=environment, flags={"server.kafka_port": "3"})
    assert (configuration["server.kafka_port"], configuration.values["server.kafka_port"].source) == (
        3,
        "flag --kafka-port",
    )
    assert configuration.values["server.host"].source == "environment TAILRACE_SERVER__HOST"
    assert configuration.values["log.level"].source == f"{tmp_path / 'tailrace.toml'} line 5"
    assert configuration.values["log.format"].source == "default"


def test_a_flag_that_was_not_given_changes_nothing(tmp_path: Path) -> None:
    configuration = read(tmp_path, "[server]\nkafka_port = 1\n", flags={"server.kafka_port": None})
    assert configuration["server.kafka_port"] == 1


def test_a_file_may_come_from_windows(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_bytes(b"\xef\xbb\xbf[server]\r\nkafka_port = 1\r\n")
    given = read(tmp_path).values["server.kafka_port"]
    assert given.value == 1
    assert given.source.endswith("line 2")


def test_a_named_file_is_read_instead_of_the_usual_one(tmp_path: Path) -> None:
    config_file(tmp_path, "[server]\nkafka_port = 1\n")
    other = tmp_path / "other.toml"
    other.write_text("[server]\nkafka_port = 2\n")
    by_flag = read_config(environment={}, file=other, directory=tmp_path)
    by_variable = read_config(environment={"TAILRACE_CONFIG": str(other)}, directory=tmp_path)
    assert by_flag["server.kafka_port"] == by_variable["server.kafka_port"] == 2


def test_a_named_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.toml: No such file"):
        read_config(environment={}, file=tmp_path / "absent.toml")


def test_everything_reaches_the_server(tmp_path: Path) -> None:
    text = """
        [server]
        host = "127.0.0.5"
        kafka_port = 0
        advertised = "broker.lan:19092"
        [native]
        socket = "/run/tailrace.sock"
        [http]
        port = 8081
        allowed_hosts = "broker.lan, proxy.lan"
        [storage]
        engine = "memory"
        data_dir = "/data"
        fsync = "interval:200"
        [memory]
        snapshot.path = "/snapshot"
        snapshot.interval.ms = 500
        [log]
        level = "warning"
        format = "json"
        [broker]
        num.partitions = 7
        "auto.create.topics.enable" = false
        [topic_defaults]
        retention.ms = 1000
        cleanup.policy = ["compact", "delete"]
    """
    assert read(tmp_path, text).server() == ServerConfig(
        host="127.0.0.5",
        kafka_port=0,
        native_socket="/run/tailrace.sock",
        http_port=8081,
        http_allowed_hosts=("broker.lan", "proxy.lan"),
        advertised=("broker.lan", 19092),
        engine="memory",
        engine_settings={"snapshot.path": "/snapshot", "snapshot.interval.ms": 500},
        data_dir=Path("/data"),
        fsync=Fsync(200),
        log_level="warning",
        log_format="json",
        broker={"num.partitions": "7", "auto.create.topics.enable": "false"},
        topic_defaults={"retention.ms": "1000", "cleanup.policy": "compact,delete"},
    )


def test_an_http_listener_that_is_switched_off_has_no_port(tmp_path: Path) -> None:
    assert read(tmp_path, "[http]\nenabled = false\nport = 8081\n").server().http_port is None


@pytest.mark.parametrize("text", ["'a.lan b.lan'", "'a.lan,b.lan'", "['a.lan', 'b.lan']"])
def test_names_of_hosts_may_be_written_in_any_way(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, f"[http]\nallowed_hosts = {text}\n").server()
    assert found.http_allowed_hosts == ("a.lan", "b.lan")


def test_every_setting_has_a_variable_of_its_own() -> None:
    table = settings()
    assert len({setting.environment for setting in table.values()}) == len(table)
    assert table["server.kafka_port"].environment == "TAILRACE_SERVER__KAFKA_PORT"
    assert table["topic_defaults.retention.ms"].environment == "TAILRACE_TOPIC_DEFAULTS__RETENTION_MS"


def test_every_setting_accepts_its_own_default_and_says_what_it_means() -> None:
    for setting in settings().values():
        assert setting.kind.read(setting.default) == setting.default
        assert setting.doc.endswith(".")
        assert setting.kind.name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nhst = 'a'", "line 2: server.hst is not a setting. Did you mean server.host?"),
        ("server.hst = 'a'", "line 1: server.hst is not a setting. Did you mean server.host?"),
        ("[server]\n\n'kafka-port' = 1", "line 3: server.kafka-port is not a setting. Did you mean server.k"),
        ("[broker]\nnum.partition = 1", "line 2: broker.num.partition is not a setting. Did you mean b"),
        ("[topic_defaults]\nretention = 1", "line 2: topic_defaults.retention is not a setting. Did you"),
        ("zzz = 1", "line 1: zzz is not a setting. Try: tailrace config show"),
        ("[storage]\nretention.ms = 1", "Did you mean topic_defaults.retention.ms?"),
        ("[broker]\nlog.retention.ms = 1", "Did you mean topic_defaults.retention.ms?"),
        ("[kafka]\nport = 1", "kafka.port is not a setting. Did you mean server.kafka_port?"),
        ("num.partitions = 1", "num.partitions is not a setting. Did you mean broker.num.partitions?"),
        ("[server]\nkafka_port = 'x'", "line 2: server.kafka_port = 'x' must be a whole number from 0 to"),
        ("[server]\nkafka_port = 65536", "server.kafka_port = 65536 must be a whole number from 0 to 65535"),
        ("[server]\nkafka_port = -1", "must be a whole number from 0 to 65535"),
        ("[server]\nkafka_port = true", "must be a whole number from 0 to 65535"),
        ("[server]\nkafka_port = 1.5", "must be a whole number from 0 to 65535"),
        ("[server]\nhost = ''", "server.host = '' must be a text that is not empty"),
        ("[server]\nhost = 3", "server.host = 3 must be a text that is not empty"),
        ("[server]\nallow_plaintext = 'maybe'", "server.allow_plaintext = 'maybe' must be true or false"),
        ("[server]\nadvertised = 'x'", "server.advertised = 'x' must be auto, or HOST:PORT"),
        ("[server]\nadvertised = '::1:9092'", "must be auto, or HOST:PORT"),
        ("[server]\nadvertised = 'unix:/x'", "must be auto, or HOST:PORT"),
        ("[native]\nsocket = 'unix:'", "native.socket = 'unix:' must be a path (such as /run/tailrace.sock)"),
        ("[http]\nport = 65536", "http.port = 65536 must be a whole number from 0 to 65535"),
        ("[http]\nenabled = 'maybe'", "http.enabled = 'maybe' must be true or false"),
        ("[http]\nallowed_hosts = 'a.lan:8080'", "must be names of hosts without their ports, with commas"),
        ("[http]\nallowed_hosts = 'http://a.lan'", "must be names of hosts without their ports"),
        ("[http]\nallowed_hosts = '*'", "must be names of hosts without their ports"),
        ("[storage]\nfsync = 'never'", "storage.fsync = 'never' must be commit, interval:<ms>"),
        ("[storage]\nengine = 'disk'", "storage.engine = 'disk' must be segment or memory or tiered"),
        ("[tiered]\npostgres_dsn = 'mysql://u:geheim@h/d'", "does not begin with postgresql://"),
        ("[tiered]\nredis_url = 'redis://cache.lan:6379'", "cross the network in the clear"),
        ("[log]\nlevel = 'loud'", "must be debug or info or warning or error"),
        ("[broker]\nnum.partitions = 0", "num.partitions = '0' is below the least that is accepted, 1"),
        ("[topic_defaults]\ncleanup.policy = 'burn'", "'burn' is not one of: compact, delete"),
        ("[topic_defaults]\nretention.ms = 1979-05-27", "must be a text, a number, true or false, or a list"),
        ("[server]\nheartbeat_interval = 0", "(server.heartbeat_interval): server.heartbeat_interval = 0 m"),
        ("[storage]\nfsync_on_write = 'perhaps'", "storage.fsync_on_write = 'perhaps' must be true or false"),
        ("[server", "is not TOML"),
        ("[server]\nhost = '0.0.0.0'", "would serve other machines without encryption"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_and_said(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text)


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_bytes(b"\xff\xfe")
    assert "is not TOML" in refusal(tmp_path)


def test_several_problems_are_counted(tmp_path: Path) -> None:
    assert "(and 2 more: see tailrace config validate)" in refusal(tmp_path, "a = 1\nb = 2\nc = 3\n")


def test_a_file_is_checked_to_its_end(tmp_path: Path) -> None:
    path = config_file(tmp_path, "[server]\nhst = 1\nkafka_port = 'x'\n[log]\nformat = 'xml'\n")
    assert len(check_file(path)) == 3
    assert check_file(config_file(tmp_path, "[server]\nkafka_port = 1\n")) == []
    (problem,) = check_file(config_file(tmp_path, "[server]\nhost = '0.0.0.0'\n"))
    assert "server.allow_plaintext" in problem


# ---- the environment


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("TAILRACE_SERVER__HOTS", "__HOTS is not a setting. Did you mean TAILRACE_SERVER__HOST?"),
        ("TAILRACE_SERVER_HOST", "Did you mean TAILRACE_SERVER__HOST?"),
        ("TAILRACE_XYZ__ABC", "is not a setting"),
    ],
)  # fmt: skip
def test_a_variable_that_was_meant_for_us_is_refused(tmp_path: Path, name: str, said: str) -> None:
    assert said in refusal(tmp_path, environment={name: "1"})


@pytest.mark.parametrize("name", ["TAILRACE_PURE", "TAILRACE_TEST_DIRECTORY", "QB_OTHER", "PATH"])
def test_a_variable_of_somebody_else_is_left_alone(tmp_path: Path, name: str) -> None:
    read(tmp_path, environment={name: "1"})


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("TAILRACE_HOST", "127.0.0.2", "server.host", "127.0.0.2"),
        ("TAILRACE_KAFKA_PORT", "2", "server.kafka_port", 2),
        ("TAILRACE_NATIVE_PORT", "2", "native.port", 2),
        ("TAILRACE_HTTP_PORT", "2", "http.port", 2),
        ("TAILRACE_DATA_DIR", "/data", "storage.data_dir", "/data"),
        ("TAILRACE_ENGINE", "memory", "storage.engine", "memory"),
        ("TAILRACE_FSYNC", "os", "storage.fsync", "os"),
    ],
)
def test_a_flag_s_name_is_a_variable(tmp_path: Path, name: str, text: str, key: str, value: object) -> None:
    given = read(tmp_path, environment={name: text}).values[key]
    assert (given.value, given.source) == (value, f"environment {name}")


def test_every_flag_has_a_variable_that_is_read(tmp_path: Path) -> None:
    for setting in settings().values():
        if setting.flag:
            environment = {setting.flag_environment: str(setting.default)}
            given = read(tmp_path, environment=environment).values[setting.key]
            assert given.source == f"environment {setting.flag_environment}"


def test_a_setting_s_own_variable_wins_over_that_of_its_flag(tmp_path: Path) -> None:
    environment = {"TAILRACE_STORAGE__FSYNC": "os", "TAILRACE_FSYNC": "commit"}
    assert read(tmp_path, environment=environment)["storage.fsync"] == "os"


def test_a_flag_s_variable_wins_over_an_older_name(tmp_path: Path) -> None:
    environment = {"QB_DATA_DIR": "/old", "TAILRACE_DATA_DIR": "/new"}
    assert read(tmp_path, environment=environment)["storage.data_dir"] == "/new"


def test_a_flag_s_variable_with_a_bad_value_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, environment={"TAILRACE_KAFKA_PORT": "x"})
    assert said.startswith("environment TAILRACE_KAFKA_PORT: server.kafka_port = 'x' must be a whole number")


def test_a_flag_s_variable_may_name_a_file(tmp_path: Path) -> None:
    (tmp_path / "value").write_text("os\n")
    environment = {"TAILRACE_FSYNC_FILE": str(tmp_path / "value")}
    assert read(tmp_path, environment=environment)["storage.fsync"] == "os"


def test_what_kubernetes_sets_for_a_service_is_not_read(tmp_path: Path) -> None:
    environment = {"TAILRACE_KAFKA_PORT": "tcp://10.0.0.7:9092"}
    assert read(tmp_path, environment=environment).values["server.kafka_port"].source == "default"


def test_a_wrong_value_names_its_variable(tmp_path: Path) -> None:
    said = refusal(tmp_path, environment={"TAILRACE_SERVER__KAFKA_PORT": "x"})
    assert said.startswith("environment TAILRACE_SERVER__KAFKA_PORT: server.kafka_port = 'x' must be a whole")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("YES", True), ("0", False), ("off", False)])
def test_yes_and_no_in_the_environment(tmp_path: Path, text: str, value: bool) -> None:
    configuration = read(tmp_path, environment={"TAILRACE_SERVER__ALLOW_PLAINTEXT": text})
    assert configuration["server.allow_plaintext"] is value


def test_a_value_may_lie_in_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "fsync"
    secret.write_text("os\n")
    configuration = read(tmp_path, environment={"TAILRACE_STORAGE__FSYNC_FILE": str(secret)})
    assert configuration.server().fsync == OS
    assert configuration.values["storage.fsync"].source == "environment TAILRACE_STORAGE__FSYNC_FILE"


def test_the_content_of_a_value_file_is_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "fsync"
    secret.write_text("hunter2\n")
    said = refusal(tmp_path, environment={"TAILRACE_STORAGE__FSYNC_FILE": str(secret)})
    assert "hunter2" not in said
    assert "storage.fsync must be commit" in said


def test_a_value_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, environment={"TAILRACE_STORAGE__FSYNC_FILE": str(tmp_path / "absent")})
    assert "cannot read" in said


# ---- older names


def test_older_variables_are_read(tmp_path: Path) -> None:
    environment = {
        "QB_SERVER_HOST": "127.0.0.7",
        "QB_SERVER_PORT": "9998",
        "QB_DATA_DIR": "/old",
        "QB_LOG_LEVEL": "DEBUG",
    }
    configuration = read(tmp_path, environment=environment)
    server = configuration.server()
    assert (server.host, server.data_dir, server.log_level) == ("127.0.0.7", Path("/old"), "debug")
    assert server.kafka_port == 9092
    assert configuration["native.port"] == 9998


def test_older_keys_are_read(tmp_path: Path) -> None:
    text = """
        [server]
        port = 9998
        heartbeat_interval = 15
        [storage]
        data_dir = './storage/data'
        fsync_on_write = false
        [client]
        request_timeout = 10
        heartbeat_interval = 20
    """
    configuration = read(tmp_path, text)
    assert configuration.server().fsync == OS
    assert configuration.server().data_dir == Path("storage/data")
    assert configuration["native.port"] == 9998
    assert configuration["native.heartbeat_interval_ms"] == 15_000
    assert configuration["client.request_timeout_ms"] == 10_000
    assert configuration["client.heartbeat_interval_ms"] == 20_000


def test_fsync_on_write_is_commit(tmp_path: Path) -> None:
    assert read(tmp_path, "[storage]\nfsync_on_write = true\n").server().fsync == COMMIT


def test_a_setting_s_own_name_wins_over_an_older_one(tmp_path: Path) -> None:
    environment = {"QB_DATA_DIR": "/old", "TAILRACE_STORAGE__DATA_DIR": "/new"}
    assert read(tmp_path, environment=environment)["storage.data_dir"] == "/new"
    text = "[storage]\nfsync = 'commit'\nfsync_on_write = false\n"
    assert read(tmp_path, text).server().fsync == COMMIT


# ---- other machines


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1", "LOCALHOST"])
def test_loopback_needs_no_permission(host: str) -> None:
    assert ServerConfig(host=host).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_other_machines_are_served_by_permission_only(host: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.allow_plaintext = true"):
        ServerConfig(host=host)
    assert ServerConfig(host=host, allow_plaintext=True).host == host


def test_a_name_that_leads_nowhere_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no address of this machine"):
        is_loopback("no-such-host.invalid")
