"""`tailrace key`: the keys of encryption at rest, and what they cover."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from tailrace.cli.config import config_option
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Output, examples, output_option, progress_bar

if TYPE_CHECKING:
    from tailrace.server.config import ServerConfig
    from tailrace.storage.encryption.config import Encryption
    from tailrace.storage.segment.rewriting import Wanted

_DATA_DIR = click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The data directory, if the configuration file does not name it.",
)
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would be done, and write nothing.")


@click.group(name="key", no_args_is_help=True)
def command() -> None:
    """Encrypt a data directory, and rotate its keys.

    A broker encrypts its data directory if [encryption] key names a key in tailrace.toml.
    """


@command.command(name="create", epilog=examples("tailrace key create ./tailrace.key"))
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@output_option
def create(file: Path, output: Output) -> None:
    """Write a new random key to a file that only its owner can read.

    Keep a copy in another place: without the key nothing of the directory can be read again.
    """
    from tailrace.security.keys import create_key_file

    output.record({"key": create_key_file(file).key_id, "file": str(file)})


@command.command(
    name="status",
    epilog=examples("tailrace key status --data-dir ./tailrace-data", "tailrace key status -o json"),
)
@config_option
@_DATA_DIR
@output_option
def status(config_file: Path | None, data_dir: Path | None, output: Output) -> None:
    """Show under which key a directory is encrypted, and what in it is still plain.

    It reads the directory, whether a broker runs or not, and needs no key.
    """
    from tailrace.storage.encryption.keys_file import KEYS, KEYS_COPY, read_keys
    from tailrace.storage.segment.rewriting import list_segments

    directory = _directory(_server(config_file), data_dir)
    files = [_read(directory / name) for name in (KEYS, KEYS_COPY)]
    found = [keys for data in files if data is not None and (keys := read_keys(data)) is not None]
    segments = list(list_segments(directory))
    plain = [each for each in segments if not each.encrypted]
    encrypted = [each for each in segments if each.encrypted]
    row: dict[str, object] = {
        "key": found[0].header.wrapped_by if found else None,
        "data_keys": len({key_id for keys in found for key_id in keys.records}),
        "encrypted_segments": len(encrypted),
        "encrypted_bytes": sum(each.bytes for each in encrypted),
        "plain_segments": len(plain),
        "plain_bytes": sum(each.bytes for each in plain),
    }
    if output.format != "table":
        row["plain"] = [each.path for each in plain]
    output.record(row)
    if any(data is not None for data in files) and len(found) < 2:
        raise CommandFailed(f"{KEYS} or {KEYS_COPY} is missing or unreadable; a start writes both again")


@command.command(
    name="rotate",
    epilog=examples(
        "tailrace key rotate --config tailrace.toml --dry-run",
        "tailrace key rotate --config tailrace.toml",
        "tailrace key rotate --config tailrace.toml --data",
    ),
)
@config_option
@_DATA_DIR
@click.option(
    "--data", "with_data", is_flag=True, help="Also encrypt every sealed segment under a new data key."
)
@click.option(
    "--before-key",
    metavar="ID",
    type=int,
    help="With --data: go on with segments under older data keys only.",
)
@_DRY_RUN
@output_option
def rotate(
    config_file: Path | None,
    data_dir: Path | None,
    with_data: bool,
    before_key: int | None,
    dry_run: bool,
    output: Output,
) -> None:
    """Wrap the data keys under another key, of a directory that no broker serves.

    Set [encryption] key to the new key and previous_key to the one before, then run this, or start the
    broker, which does the same. Remove previous_key afterwards. It may be interrupted and repeated.
    """
    from tailrace.storage.encryption.rotation import rotate_directory

    server = _server(config_file)
    directory, encryption = _directory(server, data_dir), _encryption(server)
    done = asyncio.run(rotate_directory(directory, encryption, dry_run=dry_run))
    if done is None:
        raise CommandFailed(f"{directory} has no data keys: nothing in it is encrypted")
    row: dict[str, object] = {
        "before": done.before,
        "after": done.after,
        "data_keys": done.data_keys,
        "dry_run": dry_run,
    }
    if with_data:
        from tailrace.storage.segment.rewriting import is_before, list_segments

        newest = max((each.key_id for each in list_segments(directory)), default=0)
        limit = newest + 1 if before_key is None else before_key
        if not dry_run:
            click.echo(f"if this is interrupted, go on with: --data --before-key {limit}", err=True)
        row |= _rewrite(directory, encryption, is_before(limit), dry_run=dry_run)
    output.record(row)


@command.command(
    name="encrypt",
    epilog=examples(
        "tailrace key encrypt --config tailrace.toml --dry-run", "tailrace key encrypt --config tailrace.toml"
    ),
)
@config_option
@_DATA_DIR
@_DRY_RUN
@output_option
def encrypt(config_file: Path | None, data_dir: Path | None, dry_run: bool, output: Output) -> None:
    """Encrypt the segments that are still plain, of a directory that no broker serves.

    It may be interrupted and repeated. The newest segment of a partition stays as it is: the next append ends
    it and begins an encrypted one; run this again after that.
    """
    from tailrace.storage.segment.rewriting import is_plain

    server = _server(config_file)
    directory, encryption = _directory(server, data_dir), _encryption(server)
    output.record(_rewrite(directory, encryption, is_plain, dry_run=dry_run) | {"dry_run": dry_run})


def _rewrite(directory: Path, encryption: Encryption, wanted: Wanted, *, dry_run: bool) -> dict[str, object]:
    from tailrace.storage.segment.rewriting import list_segments, rewrite_directory

    found = [each for each in list_segments(directory) if wanted(each)]
    size = sum(each.bytes for each in found)
    if dry_run:
        sealed = [each for each in found if not each.newest]
        return _counts([each.bytes for each in sealed], left=len(found) - len(sealed))
    with progress_bar("rewriting", bytes_total=size) as advance:
        done, left = asyncio.run(rewrite_directory(directory, encryption, wanted, advance=advance))
    return _counts([each.bytes for each in found if each.path in done], left=len(left))


def _counts(sizes: list[int], *, left: int) -> dict[str, object]:
    return {"rewritten": len(sizes), "bytes": sum(sizes), "left": left}


def _server(config_file: Path | None) -> ServerConfig:
    from tailrace.server.configuration import read_config

    return read_config(environment=os.environ, file=config_file).server()


def _directory(server: ServerConfig, data_dir: Path | None) -> Path:
    directory = data_dir or server.data_dir
    if not (directory / "journal").is_dir():
        raise CommandFailed(f"{directory} holds no log: it has no journal", exit_code=ExitCode.NOT_FOUND)
    return directory


def _encryption(server: ServerConfig) -> Encryption:
    found = server.encryption.read() if server.encryption is not None else None
    if found is None:
        raise CommandFailed("no key is configured. Set [encryption] key in tailrace.toml")
    return found


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
