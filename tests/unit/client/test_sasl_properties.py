"""Kafka's properties of a login, lines of JAAS as Java's users write them, and the environment."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tailrace.client.credentials import Credentials, credentials_of, from_environment
from tailrace.client.sasl_properties import read_sasl
from tailrace.model import ConfigError
from tailrace.security import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, Secret
from tailrace.spark.login import SparkLogin, spark_login

WORD = 'p;a"s s=w\\o'
SASL = {"security.protocol": "SASL_PLAINTEXT"}
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "kafkashaded.org.apache.kafka.common.security.plain.PlainLoginModule"
QUOTED = WORD.replace("\\", "\\\\").replace('"', '\\"')


def test_no_login_without_a_protocol_that_has_one() -> None:
    assert read_sasl({}) is None
    assert read_sasl({"security.protocol": "plaintext"}) is None


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512, PLAIN])
def test_user_and_password_as_librdkafka_has_them(mechanism: str) -> None:
    given = {**SASL, "sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": WORD}
    assert read_sasl(given) == Credentials("alice", Secret(WORD), mechanism)


@pytest.mark.parametrize(
    ("line", "mechanism"),
    [
        (f'{SCRAM_MODULE} required username="alice" password="{QUOTED}";', SCRAM_SHA_256),
        (f'{SCRAM_MODULE} required\n  username="alice"\n  password="{QUOTED}" ;\n', SCRAM_SHA_256),
        (f'{PLAIN_MODULE}  required username=alice password="{QUOTED}"', PLAIN),
        (f"""{PLAIN_MODULE} required serviceName='x' username='alice' password="{QUOTED}";""", PLAIN),
    ],
)
def test_jaas_lines(line: str, mechanism: str) -> None:
    found = read_sasl({**SASL, "sasl.jaas.config": line})
    assert found == Credentials("alice", Secret(WORD), mechanism)
    assert found is not None and found.password.reveal() == WORD


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"sasl.username": "alice"}, "needs security.protocol=SASL_SSL, or SASL_PLAINTEXT without TLS"),
        ({"security.protocol": "SSL", "sasl.username": "alice"}, "needs security.protocol=SASL_SSL"),
        ({"security.protocol": "GSSAPI"}, "is not one of PLAINTEXT, SASL_PLAINTEXT, SSL, SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.username and sasl.password"),
        (SASL, "needs sasl.username and sasl.password"),
        ({**SASL, "sasl.username": "alice"}, "needs sasl.username and sasl.password"),
        ({**SASL, "sasl.jaas.config": f"{SCRAM_MODULE} required secret-word"}, "is not understood"),
        ({**SASL, "sasl.jaas.config": "com.x.OtherLoginModule required a=secret-word;"}, "is not understood"),
        ({**SASL, "sasl.jaas.config": f'{SCRAM_MODULE} required password="secret-word";'}, "no username"),
        (
            {
                **SASL,
                "sasl.mechanism": PLAIN,
                "sasl.jaas.config": f'{SCRAM_MODULE} required username="a" password="secret-word";',
            },
            "has a ScramLoginModule",
        ),
        (
            {**SASL, "sasl.mechanism": "GSS", "sasl.username": "a", "sasl.password": "secret-word"},
            "GSS",
        ),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_property_and_not_the_password(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        read_sasl(given)
    assert "secret-word" not in str(raised.value)


def test_credentials_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(WORD + "\n")
    assert from_environment({}) is None
    expected = Credentials("alice", Secret(WORD))
    assert from_environment({"TAILRACE_USER": "alice", "TAILRACE_PASSWORD": WORD}) == expected
    assert from_environment({"TAILRACE_USER": "alice", "TAILRACE_PASSWORD_FILE": str(file)}) == expected
    with pytest.raises(ConfigError, match="without a password"):
        from_environment({"TAILRACE_USER": "alice"})
    with pytest.raises(ConfigError, match="cannot read the password file"):
        from_environment({"TAILRACE_USER": "alice", "TAILRACE_PASSWORD_FILE": str(tmp_path / "none")})
    file.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        from_environment({"TAILRACE_USER": "alice", "TAILRACE_PASSWORD_FILE": str(file)})


def test_username_and_password_go_together() -> None:
    assert credentials_of(None, None) is None
    assert credentials_of("alice", WORD) == credentials_of("alice", Secret(WORD))
    for user, password in (("alice", None), (None, WORD)):
        with pytest.raises(ConfigError, match="go together"):
            credentials_of(user, password)


def test_credentials_do_not_show_the_password() -> None:
    assert WORD not in repr(Credentials("alice", Secret(WORD)))
    assert WORD not in repr(SparkLogin("alice", PLAIN, WORD))


def test_spark_ships_a_login_to_its_workers() -> None:
    login = spark_login(Credentials("alice", Secret(WORD), PLAIN))
    assert login is not None
    assert pickle.loads(pickle.dumps(login)).credentials() == Credentials("alice", Secret(WORD), PLAIN)
    assert login.digest() != SparkLogin("alice", PLAIN, "other").digest()
    assert spark_login(None) is None
