"""Where everything lies in a lake, by name.

    <lake>/
        topic=orders/dt=2026-11-16/p00003-<first>-<last>.parquet     rows, for everybody
        _manifest/
            current.txt            the paths of one version of a "parquet" table (current.py)
            files/<path>.link      a hard link to each file that current.txt names, or named until lately
        _tailrace/
            lake.json              the format of the table, written once
            lock                   flock(2) on it while the table changes
            log/                   the commits of a "parquet" table (log.py)
            iceberg.db             the catalogue of an "iceberg" table
            staging/<run>/         files of a run that are in no commit yet
            old/<version>/         files that a commit replaced, until their grace is over
            quarantine/topic=T/    bytes that could not be read as records

Offsets have twenty digits, so that names sort as offsets do. `first` and `last` are the offsets of the first
and the last row, both in the file. What readers of folders must not see begins with an underscore and does
not end in `.parquet`: both, because some look at folders and some only at endings.

Names come back from logs and from workers. Each is checked here before it becomes a path.
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from tailrace.model import ConfigError

OWN = "_tailrace"
LOG = f"{OWN}/log"
STAGING = f"{OWN}/staging"
OLD = f"{OWN}/old"
QUARANTINE = f"{OWN}/quarantine"
LOCK = f"{OWN}/lock"
MARKER = f"{OWN}/lake.json"
MANIFEST = "_manifest"
CURRENT = f"{MANIFEST}/current.txt"
LINKS = f"{MANIFEST}/files"
STAGED_SUFFIX = ".staged"
OLD_SUFFIX = ".old"
LINK_SUFFIX = ".link"

DAY_US = 86_400_000_000
_DAY_FIRST = -719_162  # 0001-01-01, as days since 1970-01-01
_DAY_LAST = 2_932_896  # 9999-12-31
_EPOCH_ORDINAL = 719_163

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DATA_PATH = re.compile(
    r"topic=(?P<topic>[A-Za-z0-9._-]{1,249})/dt=(?P<day>\d{4}-\d{2}-\d{2})"
    r"/p(?P<partition>\d{5,10})-(?P<first>\d{20})-(?P<last>\d{20})(?:-(?P<turn>[1-9]\d{0,8}))?\.parquet"
)
_STAGED_PATH = re.compile(r"_tailrace/staging/[A-Za-z0-9-]{1,80}/[A-Za-z0-9-]{1,80}\.staged")


class DataName(NamedTuple):
    """What the path of a data file says."""

    topic: str
    day: str
    partition: int
    first_offset: int
    last_offset: int


def check_topic(topic: str) -> None:
    """A topic becomes a folder, so only Kafka's own alphabet will do."""
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ConfigError(
            f"{topic!r} cannot be a topic: names are 1-249 of letters, digits, '.', '_' and '-'"
        )


def data_path(name: DataName, *, turn: int = 0) -> str:
    """The path of a data file; `turn` tells files apart that hold the same range."""
    check_topic(name.topic)
    suffix = f"-{turn}" if turn else ""
    return (
        f"topic={name.topic}/dt={name.day}"
        f"/p{name.partition:05d}-{name.first_offset:020d}-{name.last_offset:020d}{suffix}.parquet"
    )


def read_data_path(path: str) -> DataName | None:
    """What a path says, or None if it is not one of a data file."""
    found = _DATA_PATH.fullmatch(path)
    if found is None or found["topic"] in (".", ".."):
        return None
    return DataName(
        found["topic"], found["day"], int(found["partition"]), int(found["first"]), int(found["last"])
    )


def is_staged_path(path: str) -> bool:
    """Whether this is a name that `Staging` gives, and nothing that leads elsewhere."""
    return _STAGED_PATH.fullmatch(path) is not None


def old_path(path: str, *, version: int) -> str:
    """Where a data file goes that commit `version` removes."""
    return f"{OLD}/{version:020d}/{path}{OLD_SUFFIX}"


def link_path(path: str) -> str:
    """The name under which current.txt lists a data file."""
    return f"{LINKS}/{path}{LINK_SUFFIX}"


def read_link_path(link: str) -> str | None:
    """The data file that a line of current.txt stands for, or None if the line is not one of ours."""
    path = link.removeprefix(f"{LINKS}/").removesuffix(LINK_SUFFIX)
    return path if link == link_path(path) and read_data_path(path) else None


def day_text(day: int) -> str:
    """A day counted from 1970-01-01 as YYYY-MM-DD. Those outside the years 1-9999 count as the nearest.

    Records may claim any time. One without a timestamp has -1 ms, which is 1969-12-31.
    """
    nearest = min(max(day, _DAY_FIRST), _DAY_LAST)
    return datetime.date.fromordinal(nearest + _EPOCH_ORDINAL).isoformat()


def resolve_root(root: str | Path) -> Path:
    """The folder of a lake; `file://` is understood, every other scheme refused."""
    text = str(root)
    if "://" not in text:
        if not text:
            raise ConfigError("the lake is an empty path. Name a folder, such as ./lake")
        return Path(text).absolute()
    parts = urlsplit(text)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ConfigError(
            f"lake {text!r}: a lake is a folder of this machine (or a mounted one) that every worker sees,"
            f" not {parts.scheme}://. Mount it and give the path"
        )
    return Path(unquote(parts.path)).absolute()
