"""Environment variables that begin with TAILRACE_: which are known, and what is said about the others.

A setting has its own variable (`TAILRACE_SERVER__KAFKA_PORT`), and a setting with a flag has the name of the
flag as well (`TAILRACE_KAFKA_PORT`). Names with two underscores belong to settings alone: `source` refuses an
unknown one. A name without them may belong to another program, so an unknown one is a warning.

Kubernetes sets variables in every container for every service of the namespace, and a service called
`tailrace` or `tailrace-kafka` sets TAILRACE_PORT or TAILRACE_KAFKA_PORT to `tcp://10.0.0.7:9092`. Such
variables are not meant for us: they are neither read nor warned about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

PREFIX = "TAILRACE_"
_NESTED = "__"

CONFIG = "TAILRACE_CONFIG"
OTHERS = frozenset(
    {
        CONFIG,
        "TAILRACE_BOOTSTRAP",
        "TAILRACE_NODE",
        "TAILRACE_PASSWORD",
        "TAILRACE_PASSWORD_FILE",
        "TAILRACE_USER",
        "TAILRACE_TOKEN",
        "TAILRACE_TOKEN_FILE",
        "TAILRACE_CONTEXT",
        "TAILRACE_HTTP",
        "TAILRACE_TLS_CA",
        "TAILRACE_TLS_CERT",
        "TAILRACE_TLS_KEY",
        "TAILRACE_TLS_PIN",
        "TAILRACE_TLS_INSECURE",
        "TAILRACE_DEMO",
        "TAILRACE_PIPELINES",
        "TAILRACE_PURE",
        "TAILRACE_BUILD",
        "TAILRACE_SEED",
        "TAILRACE_COLLECT_GARBAGE",
    }
)
"""Variables that are read and belong to no setting."""
_OF_TESTS = ("TAILRACE_TEST_", "TAILRACE_INTEROP_")

_SERVICE_NAME = re.compile(r".*_SERVICE_(HOST|PORT|PORT_.+)|.*_PORT_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?")
_SERVICE_VALUE = re.compile(r"(tcp|udp|sctp)://")


def is_service_link(name: str, value: str) -> bool:
    """Whether Kubernetes set this variable for a service."""
    if _SERVICE_NAME.fullmatch(name):
        return True
    return name.endswith("_PORT") and _SERVICE_VALUE.match(value) is not None


def warn_unknown(environment: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each variable with our prefix and no effect; it suggests a name that is near."""
    suspects = [name for name in sorted(environment) if _is_suspect(name, environment[name])]
    if not suspects:
        return
    from tailrace.server.setting import settings  # not needed in most processes, and slow to import

    flags = [each.flag_environment for each in settings().values() if each.flag]
    flat = {each.environment.replace(_NESTED, "_") for each in settings().values()}
    for name in suspects:
        if name.removesuffix("_FILE") not in {*flags, *flat}:  # `source` reads it, or refuses it
            yield f"environment {name} has no effect: it is not a setting{_suggest(name, flags)}"


def _is_suspect(name: str, value: str) -> bool:
    return (
        name.startswith(PREFIX)
        and _NESTED not in name
        and name not in OTHERS
        and not name.startswith(_OF_TESTS)
        and not is_service_link(name, value)
    )


def _suggest(name: str, flags: list[str]) -> str:
    import difflib

    given = name.removeprefix(PREFIX)
    known = [each.removeprefix(PREFIX) for each in (*flags, *sorted(OTHERS))]
    near = [each for each in known if each.endswith(f"_{given}")]
    near = near or difflib.get_close_matches(given, known, n=1, cutoff=0.6)
    meant = " or ".join(PREFIX + each for each in near)
    return f". Did you mean {meant}?" if meant else ". Try: tailrace config show"
