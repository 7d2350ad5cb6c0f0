"""Saved contexts: where a broker is and how to log in there, in ~/.config/tailrace/contexts.toml.

    current = "prod"

    [contexts.prod]
    bootstrap = "broker.example:9092"
    http = "broker.example:8080"
    user = "alice"
    password_command = "pass show tailrace"
    tls_ca = "/etc/tailrace/ca.crt"

The file has mode 0600 and is refused if other users may read it, since it names where secrets are. Secrets
themselves stay in files of their own or come out of a command. A context fills the environment of the
command's own process where that says nothing: flags win over the environment, and that over the context.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import tomllib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tailrace.model import ConfigError

VARIABLE: Final = "TAILRACE_CONTEXT"
_COMMAND_S: Final = 30.0
_OUTPUT_BYTES_MAX: Final = 4096
_FILE_BYTES_MAX: Final = 256 * 1024
_NAME_LENGTH_MAX: Final = 64

_VARIABLES: Final = {
    "bootstrap": "TAILRACE_BOOTSTRAP",
    "native": "TAILRACE_NODE",
    "http": "TAILRACE_HTTP",
    "tls_ca": "TAILRACE_TLS_CA",
}
_LOGIN_VARIABLES: Final = (
    "TAILRACE_USER",
    "TAILRACE_PASSWORD",
    "TAILRACE_PASSWORD_FILE",
    "TAILRACE_TOKEN",
    "TAILRACE_TOKEN_FILE",
)
FIELDS: Final = (*_VARIABLES, "user", "password_file", "password_command", "token_file")


@dataclass(frozen=True, slots=True)
class SavedContexts:
    """What the file holds."""

    contexts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # fields by name
    current: str = ""  # "": none is in use


def contexts_file(environment: Mapping[str, str]) -> Path:
    """Where contexts are saved (XDG base directories)."""
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "~"), ".config")
    return Path(base).expanduser() / "tailrace" / "contexts.toml"


def read_contexts(path: Path) -> SavedContexts:
    """The saved contexts, none if there is no file; ConfigError if others may read it or it is damaged."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return SavedContexts()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{path} may be read by other users, and says how to log in. Run: chmod 600 {path}")
    try:
        found = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from None
    return SavedContexts(_checked(path, found.get("contexts", {})), str(found.get("current", "")))


def write_contexts(path: Path, saved: SavedContexts) -> None:
    """Replace the file in one step; only its owner may read it, also while it is written."""
    lines = [f"current = {_quoted(saved.current)}\n"] if saved.current else []
    for name, fields in sorted(saved.contexts.items()):
        lines.append(f"\n[contexts.{_quoted(name)}]\n")
        lines += [f"{key} = {_quoted(fields[key])}\n" for key in FIELDS if key in fields]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.writelines(lines)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def check_context(name: str, fields: Mapping[str, str]) -> None:
    """ConfigError for a context that would not work."""
    if not name.isprintable() or not 1 <= len(name) <= _NAME_LENGTH_MAX:
        raise ConfigError(f"the name of a context has 1 to {_NAME_LENGTH_MAX} printable characters")
    secrets = [each for each in ("password_file", "password_command", "token_file") if each in fields]
    if len(secrets) > 1:
        raise ConfigError(f"{' and '.join(secrets)} exclude each other: a context has one secret")
    if "user" in fields and secrets == ["token_file"]:
        raise ConfigError("a token stands for its user. Leave user out, or token_file")
    if secrets and secrets != ["token_file"] and "user" not in fields:
        raise ConfigError(f"{secrets[0]} is the password of a user. Name the user")


def known_context(saved: SavedContexts, name: str) -> Mapping[str, str]:
    """The fields of a context; ConfigError lists those that there are."""
    if name not in saved.contexts:
        known = ", ".join(sorted(saved.contexts)) or "none yet: tailrace context add NAME"
        raise ConfigError(f"there is no context {name!r}. There are: {known}")
    return saved.contexts[name]


def apply_context(fields: Mapping[str, str], environment: MutableMapping[str, str]) -> None:
    """Put what a context says into the environment, where that says nothing of it."""
    for key, variable in _VARIABLES.items():
        if key in fields and not environment.get(variable):
            environment[variable] = fields[key]
    if any(environment.get(each) for each in _LOGIN_VARIABLES):
        return  # who logs in is one thing: a user of the one and a password of the other would be wrong
    if "user" in fields:
        environment["TAILRACE_USER"] = fields["user"]
    if "password_file" in fields:
        environment["TAILRACE_PASSWORD_FILE"] = fields["password_file"]
    elif "token_file" in fields:
        environment["TAILRACE_TOKEN_FILE"] = fields["token_file"]
    elif "password_command" in fields:
        environment["TAILRACE_PASSWORD"] = _password_of(fields["password_command"])


def _password_of(command: str) -> str:
    """The first line that a command prints; what it says on stderr is shown as it says it."""
    try:
        done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, timeout=_COMMAND_S, check=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the password_command of the context cannot be run: {error}") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"the password_command of the context took over {_COMMAND_S:.0f} s") from None
    line = done.stdout[: _OUTPUT_BYTES_MAX + 1].split(b"\n", 1)[0].rstrip(b"\r")
    if done.returncode or not line or len(line) > _OUTPUT_BYTES_MAX:
        raise ConfigError(
            f"the password_command of the context gave no password (exit code {done.returncode})"
        )
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise ConfigError("the password_command of the context gave no UTF-8 text") from None


def _checked(path: Path, contexts: object) -> dict[str, dict[str, str]]:
    if not isinstance(contexts, dict):
        raise ConfigError(f"{path}: contexts must be tables, such as [contexts.prod]")
    for name, fields in contexts.items():
        if not isinstance(fields, dict) or not all(isinstance(each, str) for each in fields.values()):
            raise ConfigError(f"{path}: the context {name!r} is no table of texts")
        unknown = sorted(fields.keys() - set(FIELDS))
        if unknown:
            raise ConfigError(
                f"{path}: {unknown[0]} of the context {name!r} is not one of {', '.join(FIELDS)}"
            )
        check_context(name, fields)
    return contexts


def _quoted(text: str) -> str:
    """A basic string of TOML; JSON escapes alike."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
