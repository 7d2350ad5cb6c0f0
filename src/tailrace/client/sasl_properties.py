"""Kafka's properties of a login: `security.protocol` and `sasl.*`, as clients and Spark are given them.

security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-256
sasl.username=alice          sasl.password=...                 as librdkafka has them, or
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required
    username="alice" password="...";                           as Java has them

sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.token=...                                     a token, or a function that gives one; or
sasl.oauthbearer.token.endpoint.url=https://...                client credentials, with
sasl.oauthbearer.client.id=... sasl.oauthbearer.client.secret=...
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tailrace.client.address import PROTOCOLS
from tailrace.client.bearer import BearerCredentials, ClientCredentials, GiveToken, called, fixed
from tailrace.client.credentials import AnyCredentials, Credentials
from tailrace.model import ConfigError
from tailrace.security import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_SHA_256, Secret
from tailrace.security.mechanism import PASSWORD_MECHANISMS
from tailrace.security.verifier import HASHES

PROTOCOL: Final = "security.protocol"
TOKEN: Final = "sasl.oauthbearer.token"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID: Final = "sasl.oauthbearer.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.secret"
_SCOPE: Final = "sasl.oauthbearer.scope"
_CA: Final = "sasl.oauthbearer.ca.location"
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_OAUTH: Final = frozenset({TOKEN, _URL, _CLIENT_ID, _CLIENT_SECRET, _SCOPE, _CA, _EXTENSIONS})
SASL_PROPERTIES: Final = frozenset(
    {"sasl.jaas.config", "sasl.mechanism", "sasl.mechanisms", "sasl.password", "sasl.username", *_OAUTH}
)
_JAAS: Final = re.compile(
    r"\s*(?:[\w.]*\.)?(?P<module>\w+LoginModule)\s+(?:required|requisite|sufficient|optional)"
    r"(?P<options>(?:\s+\w+\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s;\"']+))*)\s*;?\s*",
    re.DOTALL,
)
_OPTION: Final = re.compile(
    r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))", re.DOTALL
)
_OAUTH_MODULE: Final = "OAuthBearerLoginModule"
_EXTENSION: Final = "extension_"
_MODULES: Final = {"ScramLoginModule": (*HASHES,), "PlainLoginModule": (PLAIN,)}


def read_sasl(
    given: Mapping[str, str | None], *, give_token: GiveToken | None = None
) -> AnyCredentials | None:
    """Who logs in; None without a login. ConfigError names the property and never its value."""
    protocol = (given.get(PROTOCOL) or "PLAINTEXT").upper()
    named = sorted(name for name in SASL_PROPERTIES if given.get(name) or (name == TOKEN and give_token))
    if protocol not in PROTOCOLS:
        raise ConfigError(f"{PROTOCOL}: {protocol!r} is not one of {', '.join(PROTOCOLS)}")
    if not protocol.startswith("SASL_"):
        if named:
            raise ConfigError(f"{named[0]} needs {PROTOCOL}=SASL_SSL, or SASL_PLAINTEXT without TLS")
        return None
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or ""
    if mechanism == OAUTHBEARER:
        return _read_oauth(given, give_token)
    for name in sorted(_OAUTH):
        if name in named:
            raise ConfigError(f"{name} needs sasl.mechanism={OAUTHBEARER}")
    user, password = given.get("sasl.username"), given.get("sasl.password")
    if jaas := given.get("sasl.jaas.config"):
        if user or password:
            raise ConfigError("sasl.jaas.config and sasl.username say the same. Leave one of them out")
        module, user, password = _read_jaas(jaas)
        mechanism = mechanism or _MODULES[module][0]
        if mechanism not in _MODULES[module]:
            raise ConfigError(f"sasl.jaas.config has a {module}, and sasl.mechanism is {mechanism!r}")
    if not user or not password:
        raise ConfigError(f"{PROTOCOL}={protocol} needs sasl.username and sasl.password")
    if (mechanism or SCRAM_SHA_256) not in PASSWORD_MECHANISMS:
        raise ConfigError(f"sasl.mechanism: {mechanism!r} is not one of {', '.join(MECHANISMS)}")
    return Credentials(user, Secret(password), mechanism or SCRAM_SHA_256)


def _read_oauth(given: Mapping[str, str | None], give_token: GiveToken | None) -> BearerCredentials:
    """Where the token comes from: it is given, a function gives it, or the endpoint does."""
    for name in ("sasl.username", "sasl.password"):
        if given.get(name):
            raise ConfigError(f"{name} is not for sasl.mechanism={OAUTHBEARER}, which takes a token")
    found = {**_oauth_jaas(given.get("sasl.jaas.config")), **{k: v for k, v in given.items() if v}}
    extensions = _read_extensions(found.get(_EXTENSIONS))
    url, token = found.get(_URL), found.get(TOKEN)
    if give_token is not None:
        return BearerCredentials(called(give_token), extensions)
    if token and url:
        raise ConfigError(f"{TOKEN} and {_URL} exclude each other. Leave one of them out")
    if token:
        return BearerCredentials(fixed(Secret(token)), extensions)
    client_id, secret = found.get(_CLIENT_ID), found.get(_CLIENT_SECRET)
    if not url or not client_id or not secret:
        raise ConfigError(
            f"sasl.mechanism={OAUTHBEARER} needs {TOKEN}, or {_URL} with {_CLIENT_ID} and {_CLIENT_SECRET}"
        )
    source = ClientCredentials(
        url,
        client_id=client_id,
        client_secret=Secret(secret),
        scope=found.get(_SCOPE, ""),
        ca=found.get(_CA, ""),
    )
    return BearerCredentials(source.token, extensions)


def _oauth_jaas(text: str | None) -> dict[str, str]:
    """Client id, secret, scope and extensions of an OAuthBearerLoginModule, as Java has them (KIP-768)."""
    if not text:
        return {}
    module, options = _jaas_options(text)
    if module != _OAUTH_MODULE:
        raise ConfigError(f"sasl.jaas.config has a {module}, and sasl.mechanism is {OAUTHBEARER!r}")
    names = {"clientId": _CLIENT_ID, "clientSecret": _CLIENT_SECRET, "scope": _SCOPE}
    found = {names[name]: value for name, value in options.items() if name in names}
    extensions = [
        f"{name.removeprefix(_EXTENSION)}={value}"
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    ]
    return {**found, **({_EXTENSIONS: ",".join(extensions)} if extensions else {})}


def _read_extensions(text: str | None) -> dict[str, str]:
    """name=value, with commas between, as librdkafka has them."""
    found = {}
    for each in (text or "").split(",") if text else ():
        name, equals, value = each.partition("=")
        if not equals or not name.isalpha() or name == "auth":
            raise ConfigError(f"{_EXTENSIONS} is not NAME=VALUE,NAME=VALUE")
        found[name] = value
    return found


def _read_jaas(text: str) -> tuple[str, str, str]:
    """Module, user and password of a line of JAAS."""
    module, options = _jaas_options(text)
    if module == _OAUTH_MODULE:
        raise ConfigError(f"sasl.jaas.config has a {module}, which needs sasl.mechanism={OAUTHBEARER}")
    if not options.get("username") or not options.get("password"):
        raise ConfigError("sasl.jaas.config has no username or no password")
    return module, options["username"], options["password"]


def _jaas_options(text: str) -> tuple[str, dict[str, str]]:
    """Module and options of a line of JAAS."""
    found = _JAAS.fullmatch(text)
    if found is None or found["module"] not in (*_MODULES, _OAUTH_MODULE):
        raise ConfigError(
            "sasl.jaas.config is not understood. Write it as: "
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="..." password="...";'
        )
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single) or bare
        for name, double, single, bare in _OPTION.findall(found["options"])
    }
    return found["module"], options
