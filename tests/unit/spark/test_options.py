"""Options as Spark hands them over: names in any case, typed values, and errors that name the way out."""

from __future__ import annotations

import pickle

import pytest

from tailrace.model import ConfigError
from tailrace.spark.options import KAFKA_LINK, Options, link_settings

KNOWN = {*KAFKA_LINK, "startingOffsets", "failOnDataLoss", "maxTriggerDelay", "minPartitions"}


def options(**given: str) -> Options:
    return Options({name.replace("__", "."): value for name, value in given.items()}, known=KNOWN)


def test_names_are_known_in_any_case() -> None:
    for name in ("startingOffsets", "startingoffsets", "STARTINGOFFSETS"):
        assert options(**{name: " latest "}).text("startingOffsets") == "latest"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("startingOfsets", "Did you mean startingOffsets"),
        ("bootstrap.servers", "Did you mean kafka.bootstrap.servers"),
        ("kafka.bootstrap.server", "Did you mean kafka.bootstrap.servers"),
        ("colour", "There are failOnDataLoss, .*startingOffsets, and kafka"),
    ],
)
def test_an_unknown_name_is_an_error_that_suggests_the_near_one(name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=f"option '{name.lower()}' is not known. {advice}"):
        Options({name: "1"}, known=KNOWN)


@pytest.mark.parametrize(
    "name",
    [
        *("path", "kafka.retries", "kafka.receive.buffer.bytes", "kafka.metric.reporters"),
        *(f"kafka.metrics.{each}" for each in ("num.samples", "recording.level", "sample.window.ms")),
    ],
)
def test_what_spark_adds_and_what_only_tunes_the_java_client_is_let_pass(name: str) -> None:
    assert Options({name: "1"}, known=KNOWN).text("minPartitions") is None


@pytest.mark.parametrize("name", ["kafka.sasl.kerberos.service.name", "kafka.ssl.truststore.password"])
def test_security_of_java_alone_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not supported.*kafka.ssl.ca.location"):
        Options({name: "x"}, known=KNOWN)


def test_an_empty_check_of_host_names_is_let_pass_without_tls() -> None:
    name = "kafka.ssl.endpoint.identification.algorithm"
    Options({name: " "}, known=KNOWN)
    given = {"kafka.bootstrap.servers": "127.0.0.1:9092", name: ""}
    assert link_settings(Options(given, known=KAFKA_LINK)).tls is None


def test_tls_is_shipped_as_sparks_kafka_source_names_it() -> None:
    given = {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "open sesame",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.keystore.location": "/etc/me.pem",
        "kafka.ssl.key.password": "hidden one",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    settings = link_settings(Options(given, known=KAFKA_LINK))
    shipped = pickle.loads(pickle.dumps(settings)).tls
    tls = shipped.client_tls()
    assert (tls.ca, tls.cert, tls.key, tls.verify, tls.check_hostname) == (
        "/etc/ca.pem",
        "/etc/me.pem",
        None,
        True,
        False,
    )
    assert tls.key_password is not None and tls.key_password.reveal() == "hidden one"
    assert "hidden" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("ssl.ca.location", "/ca", "kafka.ssl.ca.location needs security.protocol=SSL or SASL_SSL"),
        ("security.protocol", "TLS", "is not one of PLAINTEXT, SASL_PLAINTEXT, SSL, SASL_SSL"),
    ],
)
def test_tls_that_would_have_no_effect_is_refused(name: str, value: str, problem: str) -> None:
    given = {"kafka.bootstrap.servers": "broker:9092", f"kafka.{name}": value}
    with pytest.raises(ConfigError, match=problem):
        link_settings(Options(given, known=KAFKA_LINK))


def test_a_refused_option_comes_with_its_advice() -> None:
    with pytest.raises(ConfigError, match=r"option groupId='x' is not supported: leave it out"):
        Options({"groupid": "x"}, known=KNOWN, refused={"groupId": "leave it out"})


@pytest.mark.parametrize("value", ["0", "-1", "", "ten", "1.5", "1_000", "٣", "9" * 30])
def test_a_number_that_is_none_is_refused_by_name_and_value(value: str) -> None:
    with pytest.raises(ConfigError, match=r"option minPartitions=.* is not a whole number"):
        options(minPartitions=value).number("minPartitions")


@pytest.mark.parametrize(("value", "flag"), [("true", True), ("FALSE", False), ("True", True)])
def test_flags_are_read_in_any_case(value: str, flag: bool) -> None:
    assert options(failOnDataLoss=value).flag("failOnDataLoss", default=not flag) is flag


@pytest.mark.parametrize("value", ["yes", "1", ""])
def test_a_flag_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"option failOnDataLoss=.* Use one of: true, false"):
        options(failOnDataLoss=value).flag("failOnDataLoss", default=True)


@pytest.mark.parametrize(
    ("value", "wanted_ms"),
    [("15m", 900_000), ("30 seconds", 30_000), ("1h", 3_600_000), ("250", 250), ("250ms", 250)],
)
def test_durations_are_read_as_spark_writes_them(value: str, wanted_ms: int) -> None:
    assert options(maxTriggerDelay=value).duration_ms("maxTriggerDelay", default_ms=1) == wanted_ms


@pytest.mark.parametrize("value", ["", "soon", "-5s", "5 fortnights", "1.5h"])
def test_a_duration_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"option maxTriggerDelay=.* is not a duration"):
        options(maxTriggerDelay=value).duration_ms("maxTriggerDelay", default_ms=1)


def test_the_link_is_described_by_kafka_s_own_settings() -> None:
    settings = link_settings(
        options(
            kafka__bootstrap__servers="a:1,b:2", kafka__client__id="me", kafka__request__timeout__ms="1500"
        )
    )
    assert (settings.bootstrap_servers, settings.client_id, settings.request_timeout_s) == (
        "a:1,b:2",
        "me",
        1.5,
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({"kafka__bootstrap__servers": "a:b:c"}, "kafka.bootstrap.servers='a:b:c'"),
        (
            {"kafka__bootstrap__servers": "a:1", "kafka__security__protocol": "SASL_SSL"},
            "option kafka.security.protocol=SASL_SSL needs sasl.username and sasl.password",
        ),
    ],
)
def test_a_link_that_cannot_be_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        link_settings(options(**given))
