"""`tailrace cert init`: certificates, and a configuration with TLS and logins on every listener."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tailrace.model.address import Address
from tailrace.server.authority import (
    Pair,
    ca_paths,
    check_new,
    client_paths,
    is_host_name,
    make_ca,
    make_client,
    make_server,
    read_ca,
    server_paths,
    write_new,
    write_pair,
)
from tailrace.server.configuration import FILE_NAME
from tailrace.server.setting import settings

_LISTENERS: Final = (
    ("kafka", 9092, '["SCRAM-SHA-256", "SCRAM-SHA-512"]'),
    ("native", 9999, '["SCRAM-SHA-256", "SCRAM-SHA-512"]'),
    ("http", 8080, '["PLAIN"]'),
)


def init(directory: Path, *, host: str = "127.0.0.1", names: Sequence[str] = ()) -> list[Path]:
    """Make the CA, the server's certificate and the configuration; returns the files.

    ConfigError if one of them exists. `names` are further names and addresses by which clients reach the
    broker.
    """
    own = socket.gethostname()
    hosts = [own] if is_host_name(own) else []
    listed = [*dict.fromkeys(("localhost", "127.0.0.1", "::1", *hosts, *names))]
    files = [*ca_paths(directory), *server_paths(directory), directory / FILE_NAME]
    check_new(files)
    ca = make_ca()
    server = make_server(ca, names=listed)
    directory.mkdir(parents=True, exist_ok=True)
    ca_paths(directory)[1].parent.mkdir(mode=0o700, exist_ok=True)
    write_pair(ca, *ca_paths(directory))
    write_pair(server, *server_paths(directory))
    text = "\n".join(_configuration(directory, host=host, names=listed)) + "\n"
    write_new(directory / FILE_NAME, text.encode(), mode=0o644)
    return files


def add_client(directory: Path, name: str) -> tuple[list[Path], Pair]:
    """Make a certificate for a client by the CA of a directory; returns the files and the certificate."""
    ca = read_ca(directory)
    made = make_client(ca, name)
    files = client_paths(directory, name)
    check_new(files)
    files[0].parent.mkdir(mode=0o700, exist_ok=True)
    write_pair(made, *files)
    return list(files), made


def _configuration(directory: Path, *, host: str, names: Sequence[str]) -> Iterator[str]:
    cert, key = server_paths(directory)
    yield '# Written by tailrace cert init. To serve other machines: address = "0.0.0.0:PORT".'
    yield "# To demand certificates of clients as well: client_ca in tls, and tailrace cert client."
    yield ""
    yield "[storage]"
    yield f"data_dir = {_quoted(directory / 'data')}"
    if "security.authorizer" in settings():
        yield ""
        yield "[security]"
        yield 'authorizer = "acl"'
        yield 'super_users = ["User:admin"]'
    hosts = [each for each in names if not _is_loopback_name(each)]
    if hosts:
        yield ""
        yield "[http]"
        yield f"allowed_hosts = {json.dumps(', '.join(hosts))}"
    for protocol, port, sasl in _LISTENERS:
        yield ""
        yield "[[listeners]]"
        yield f'name = "{protocol}"'
        yield f'protocol = "{protocol}"'
        yield f"address = {json.dumps(str(Address(host, port)))}"
        yield f"sasl = {sasl}"
        yield f"tls = {{cert = {_quoted(cert)}, key = {_quoted(key)}}}"


def _is_loopback_name(name: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or "*" in name or "_" in name
    return True


def _quoted(path: Path) -> str:
    """A path as TOML has it; ./ stays in front of a relative one, as people read it."""
    text = str(path)
    return json.dumps(
        text if path.is_absolute() or text.startswith("..") else f"./{text}", ensure_ascii=False
    )
