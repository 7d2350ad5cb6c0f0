"""[[listeners]] of the configuration: what is read, and how what is wrong is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.cli.main import main
from tailrace.model import ConfigError
from tailrace.model.address import Address
from tailrace.net.tls import TlsConfig
from tailrace.security.oauth.config import OauthConfig
from tailrace.security.oauth.issuer import check_usable
from tailrace.server.configuration import check_file, read_config
from tailrace.server.listener import ListenerConfig

KAFKA = '[[listeners]]\nname = "kafka"\nprotocol = "kafka"\naddress = "127.0.0.1:0"\n'
NATIVE = '[[listeners]]\nname = "native"\nprotocol = "native"\naddress = "[::1]:9999"\nsasl = ["PLAIN"]\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tailrace.toml"
    path.write_text(text)
    return path


def test_listeners_take_the_place_of_the_default_ones(tmp_path: Path) -> None:
    more = '[[listeners]]\nname = "inside"\nprotocol = "kafka"\naddress = "localhost:9192"\n'
    config = read_config(environment={}, file=written(tmp_path, KAFKA + NATIVE + more)).server()
    assert config.listeners_of("kafka") == [
        ListenerConfig(name="kafka", protocol="kafka", address=Address("127.0.0.1", 0)),
        ListenerConfig(name="inside", protocol="kafka", address=Address("localhost", 9192)),
    ]
    assert config.listeners_of("native") == [
        ListenerConfig(name="native", protocol="native", address=Address("::1", 9999), sasl=("PLAIN",))
    ]
    assert config.listeners_of("http") == []


def test_without_listeners_there_is_one_of_each_protocol() -> None:
    config = read_config(environment={}, directory=Path("/nonexistent")).server()
    assert [config.listeners_of(each)[0].address.port for each in ("kafka", "native", "http")] == [
        9092,
        9999,
        8080,
    ]
    assert not any(each.sasl for each in config.listeners_of("kafka"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listeners = 3\n", "must be tables"),
        ("[listeners]\nname = 'x'\n", "must be tables"),
        (KAFKA.replace('"kafka"\np', '"Kafka!"\np'), "name must be"),
        (KAFKA.replace('name = "kafka"\n', ""), "number 1: name must be"),
        (KAFKA.replace('protocol = "kafka"', 'protocol = "amqp"'), "protocol must be kafka, native or http"),
        (KAFKA.replace("127.0.0.1:0", "127.0.0.1"), "address must be HOST:PORT"),
        (KAFKA.replace("127.0.0.1:0", "::1:9092"), "address must be HOST:PORT"),
        (KAFKA.replace("127.0.0.1:0", "127.0.0.1:65536"), "no port from 0 to 65535"),
        (KAFKA.replace('address = "127.0.0.1:0"\n', ""), "it is missing"),
        (KAFKA + 'sasl = "PLAIN"\n', "sasl must be a list"),
        (KAFKA + 'sasl = ["GSSAPI"]\n', "sasl has 'GSSAPI', and there are: SCRAM-SHA-256"),
        (KAFKA + "ssl = true\n", "ssl is not a setting. There are: address, name, oauth, protocol"),
        (KAFKA + "tls = true\n", "tls must be a table, such as {cert ="),
        (KAFKA + 'tls = {cert = "c"}\n', "tls.key is missing: tls needs cert and key. To make them"),
        (KAFKA + 'tls = {cert = "c", key = 3}\n', "tls.key must be a text that is not empty"),
        (KAFKA + 'tls = {cert = "c", key = "k", ca = "x"}\n', "tls.ca is not a setting. There are: cert"),
        (KAFKA + 'tls = {cert = "c", key = "k", min_version = "1.1"}\n', "min_version must be 1.2 or 1.3"),
        (KAFKA + 'tls = {cert = "c", key = "k", principal = "O"}\n', "must be one of DN, CN"),
        (KAFKA + 'tls = {cert = "c", key = "k", crl = "x"}\n', "tls.crl is about certificates of clients"),
        (NATIVE.replace('= "native"', '= "http"').replace('"PLAIN"', '"SCRAM-SHA-256"'), "Basic"),
        (KAFKA + KAFKA + NATIVE, "2 have this name"),
        (NATIVE.replace('name = "native"', 'name = "http"') + KAFKA, "cannot have this name"),
        (KAFKA, 'none with protocol = "native"'),
        (NATIVE, 'none with protocol = "kafka"'),
        (KAFKA.replace("127.0.0.1", "0.0.0.0") + NATIVE, "server.allow_plaintext = true"),
        (KAFKA + NATIVE.replace("[::1]", "0.0.0.0"), "would send secrets in the clear"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_fix(tmp_path: Path, text: str, problem: str) -> None:
    found = check_file(written(tmp_path, text))
    assert any(problem in each for each in found), found


def test_plain_passwords_never_leave_the_machine_even_if_plaintext_may(tmp_path: Path) -> None:
    text = "[server]\nallow_plaintext = true\n" + KAFKA + NATIVE.replace("[::1]", "0.0.0.0")
    with pytest.raises(
        ConfigError, match="Give the listener tls, or use SCRAM-SHA-256, or a loopback address"
    ):
        read_config(environment={}, file=written(tmp_path, text)).server()
    scram = text.replace("PLAIN", "SCRAM-SHA-512")
    assert read_config(environment={}, file=written(tmp_path, scram)).server().listeners


def test_a_flag_for_a_default_listener_is_refused_beside_listeners(tmp_path: Path) -> None:
    file = written(tmp_path, KAFKA + NATIVE)
    with pytest.raises(ConfigError, match=r"flag --kafka-port: server.kafka_port has no effect beside"):
        read_config(environment={}, file=file, flags={"server.kafka_port": "1"})
    with pytest.raises(ConfigError, match=r"TAILRACE_SERVER__HOST: server.host has no effect"):
        read_config(environment={"TAILRACE_SERVER__HOST": "::1"}, file=file)


@pytest.mark.parametrize("key", ["name", "protocol", "address", "sasl"])
def test_config_explain_knows_the_keys(tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(written(tmp_path, KAFKA + NATIVE))
    assert main(["config", "explain", f"listeners.{key}", "--config", file]) == 0
    assert "native: " in capsys.readouterr().out
    assert main(["config", "show", "--config", file]) == 0
    assert "listeners.native.sasl" in capsys.readouterr().out


# ---- oauth

JWKS = "https://issuer.example/keys"
OAUTH = f'oauth = {{ issuer = "https://issuer.example", audience = "tailrace", jwks = "{JWKS}" }}\n'
OFFERED = 'sasl = ["OAUTHBEARER"]\n'


def test_a_listener_has_the_issuer_of_its_tokens(tmp_path: Path) -> None:
    more = OAUTH.replace(" }", ', principal_claim = "client_id", algorithms = ["ES256"], ca = "ca.pem" }')
    text = KAFKA + OFFERED + OAUTH + NATIVE.replace('"PLAIN"', '"OAUTHBEARER"') + more
    config = read_config(environment={}, file=written(tmp_path, text)).server()
    found = config.listeners_of("kafka")[0].oauth
    assert found == OauthConfig(issuer="https://issuer.example", audience="tailrace", jwks=JWKS)
    other = config.listeners_of("native")[0].oauth
    assert other is not None
    assert (other.principal_claim, other.algorithms, other.ca) == ("client_id", ("ES256",), "ca.pem")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (OFFERED, "OAUTHBEARER and needs oauth"),
        (OAUTH, "has no effect"),
        (OFFERED + 'oauth = "https://issuer.example"\n', "oauth must be a table"),
        (OFFERED + "oauth = {}\n", "oauth.issuer is missing"),
        (OFFERED + OAUTH.replace('issuer = "https://issuer.example", ', ""), "oauth.issuer is missing"),
        (OFFERED + OAUTH.replace('audience = "tailrace", ', ""), "oauth.audience is missing"),
        (OFFERED + OAUTH.replace('audience = "tailrace"', 'audience = ""'), "oauth.audience is missing"),
        (OFFERED + OAUTH.replace(f', jwks = "{JWKS}"', ""), "oauth.jwks is missing"),
        (OFFERED + OAUTH.replace('"tailrace"', '["tailrace"]'), "oauth.audience must be a text"),
        (OFFERED + OAUTH.replace("https://issuer.example/keys", "http://issuer.example/keys"), "oauth.jwks"),
        (OFFERED + OAUTH.replace(" }", ', algorithms = ["none"] }'), "only RS256, PS256, ES256"),
        (OFFERED + OAUTH.replace(" }", ', algorithms = ["HS256"] }'), "only RS256, PS256, ES256"),
        (OFFERED + OAUTH.replace(" }", ", algorithms = [] }"), "oauth.algorithms is empty"),
        (OFFERED + OAUTH.replace(" }", ', algorithms = "RS256" }'), "oauth.algorithms must be a list"),
        (OFFERED + OAUTH.replace(" }", ', principal_claim = "" }'), "oauth.principal_claim is empty"),
        (OFFERED + OAUTH.replace(" }", ", leeway = 60 }"), "oauth.leeway is not a setting"),
    ],
)
def test_oauth_that_would_accept_tokens_of_others_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    assert any(problem in each for each in check_file(written(tmp_path, KAFKA + text + NATIVE)))


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "PLAIN"])
def test_secrets_are_not_sent_in_the_clear_to_other_machines(tmp_path: Path, mechanism: str) -> None:
    text = KAFKA.replace("127.0.0.1:0", "192.0.2.7:9092") + f'sasl = ["{mechanism}"]\n' + NATIVE
    text += "[server]\nallow_plaintext = true\n"
    if mechanism == "OAUTHBEARER":
        text = text.replace(OFFERED, OFFERED + OAUTH)
    with pytest.raises(ConfigError, match=rf"sasl = {mechanism} on 192\.0\.2\.7 would send secrets"):
        read_config(environment={}, file=written(tmp_path, text)).server()


def test_a_node_says_how_to_get_what_checks_tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = OauthConfig(issuer="i", audience="a", jwks=JWKS)
    check_usable(config, listener="kafka")
    bad = tmp_path / "keys.json"
    for text, said in ((None, "cannot be read"), ("{}", "no list"), ('{"keys": []}', "no RSA key")):
        if text is not None:
            bad.write_text(text)
        with pytest.raises(ConfigError, match=f"listeners 'kafka': oauth: jwks: .*{said}"):
            check_usable(replace(config, jwks=bad.as_uri()), listener="kafka")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'tailrace\[auth\]'"):
        check_usable(config, listener="kafka")


TLS = 'tls = {cert = "server.crt", key = "server.key"}\n'


def test_with_tls_other_machines_are_served_and_passwords_may_be_sent(tmp_path: Path) -> None:
    text = KAFKA.replace("127.0.0.1", "0.0.0.0") + TLS + NATIVE.replace("[::1]", "0.0.0.0") + TLS
    config = read_config(environment={}, file=written(tmp_path, text)).server()
    (kafka,), (native,) = config.listeners_of("kafka"), config.listeners_of("native")
    assert kafka.tls == TlsConfig(cert=Path("server.crt"), key=Path("server.key"))
    assert (kafka.security_protocol, native.security_protocol) == ("SSL", "SASL_SSL")


def test_a_listener_of_certificates_has_no_unix_socket_beside_it(tmp_path: Path) -> None:
    tls = 'tls = {cert = "c", key = "k", client_ca = "ca"}\n'
    native = NATIVE.replace('sasl = ["PLAIN"]\n', "")
    text = '[native]\nsocket = "/run/tailrace.sock"\n' + KAFKA + native + tls
    with pytest.raises(ConfigError, match="without a certificate, which listeners 'native' demands"):
        read_config(environment={}, file=written(tmp_path, text)).server()
    read_config(environment={}, file=written(tmp_path, text + 'sasl = ["SCRAM-SHA-256"]\n')).server()
