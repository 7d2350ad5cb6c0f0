"""Kafka's properties of a login: `security.protocol` and `sasl.*`, as clients and Spark are given them.

security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-256
sasl.username=alice          sasl.password=...                 as librdkafka has them, or
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required
    username="alice" password="...";                           as Java has them
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tailrace.client.address import PROTOCOLS
from tailrace.client.credentials import Credentials
from tailrace.model import ConfigError
from tailrace.security import MECHANISMS, PLAIN, SCRAM_SHA_256, Secret

PROTOCOL: Final = "security.protocol"
SASL_PROPERTIES: Final = frozenset(
    {"sasl.jaas.config", "sasl.mechanism", "sasl.mechanisms", "sasl.password", "sasl.username"}
)
_JAAS: Final = re.compile(
    r"\s*(?:[\w.]*\.)?(?P<module>\w+LoginModule)\s+(?:required|requisite|sufficient|optional)"
    r"(?P<options>(?:\s+\w+\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s;\"']+))*)\s*;?\s*",
    re.DOTALL,
)
_OPTION: Final = re.compile(
    r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))", re.DOTALL
)
_MODULES: Final = {"ScramLoginModule": (*MECHANISMS[:2],), "PlainLoginModule": (PLAIN,)}


def read_sasl(given: Mapping[str, str | None]) -> Credentials | None:
    """Who logs in; None without a login. ConfigError names the property and never its value."""
    protocol = (given.get(PROTOCOL) or "PLAINTEXT").upper()
    named = sorted(name for name in SASL_PROPERTIES if given.get(name))
    if protocol not in PROTOCOLS:
        raise ConfigError(f"{PROTOCOL}: {protocol!r} is not one of {', '.join(PROTOCOLS)}")
    if not protocol.startswith("SASL_"):
        if named:
            raise ConfigError(f"{named[0]} needs {PROTOCOL}=SASL_SSL, or SASL_PLAINTEXT without TLS")
        return None
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or ""
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
    if (mechanism or SCRAM_SHA_256) not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism: {mechanism!r} is not one of {', '.join(MECHANISMS)}")
    return Credentials(user, Secret(password), mechanism or SCRAM_SHA_256)


def _read_jaas(text: str) -> tuple[str, str, str]:
    """Module, user and password of a line of JAAS."""
    found = _JAAS.fullmatch(text)
    if found is None or found["module"] not in _MODULES:
        raise ConfigError(
            "sasl.jaas.config is not understood. Write it as: "
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="..." password="...";'
        )
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single) or bare
        for name, double, single, bare in _OPTION.findall(found["options"])
    }
    if not options.get("username") or not options.get("password"):
        raise ConfigError("sasl.jaas.config has no username or no password")
    return found["module"], options["username"], options["password"]
