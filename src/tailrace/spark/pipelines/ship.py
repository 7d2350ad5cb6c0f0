"""`--ship`: Tailrace itself, sent to the workers of a cluster that do not have it installed.

Each package becomes an archive that Spark unpacks, under the package's own name, into the directory in which
an executor runs. Spark puts that directory on the path of every Python that it starts there, whatever the
cluster manager, so nothing else has to be set:

    spark.archives = /tmp/.../tailrace.tar.gz#tailrace,/tmp/.../msgspec.tar.gz#msgspec,...

Compiled packages go too, as they are installed here, so the workers need the same Python version and the
same platform as the driver. pyarrow, numpy and pandas are not sent: they are large, and clusters that run
Python on Spark have them.
"""

from __future__ import annotations

import tarfile
from importlib.util import find_spec
from pathlib import Path

from tailrace.model import ConfigError

REQUIRED = ("tailrace", "cramjam", "fastcrc", "lz4", "msgspec", "zstandard")
"""What Python workers import, beside what Spark and pyarrow bring."""
OPTIONAL = ("uvloop",)
NOT_SHIPPED = ("numpy", "pandas", "pyarrow")
_LEFT_OUT = frozenset({"__pycache__", "console", "demo"})  # caches; the files and events of a broker


def pack(folder: Path) -> list[str]:
    """Write the archives into a folder; returns them as `spark.archives` has them."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [*REQUIRED, *(name for name in OPTIONAL if find_spec(name) is not None)]
    return [_pack_one(place, folder) for name in wanted for place in _find(name)]


def _find(name: str) -> list[Path]:
    """The folder of a package, and that of the shared libraries that its wheel brought."""
    spec = find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if len(places) != 1:
        raise ConfigError(f"--ship cannot send {name}: it is not a package in one folder of this machine")
    place = Path(places[0])
    return [place, *place.parent.glob(f"{name}.libs")]


def _pack_one(place: Path, folder: Path) -> str:
    archive = folder / f"{place.name}.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        for each in sorted(place.iterdir()):
            packed.add(each, arcname=each.name, filter=_wanted)
    return f"{archive}#{place.name}"


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """The entry, owned by root as in any package; None for what no worker imports."""
    if not _LEFT_OUT.isdisjoint(Path(entry.name).parts):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
