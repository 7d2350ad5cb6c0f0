"""A SPARK_HOME of links to the installed pyspark, from which Spark's Pythons start faster.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` in front of the path of every Python that it starts, so each
one imports pyspark out of a zip, without compiled files. In this SPARK_HOME that name is a folder:

    spark-home-4.3.0-1f2e3d4c/
      bin, jars, sbin, ...            links to what the installed package has
      python/pyspark                  a link to the installed package
      python/lib/pyspark.zip/         a folder with a link to the installed package
      python/lib/py4j-...-src.zip/    the same for py4j

A start of such a Python takes about a third of the processor time. Spark waits 10 s for some of them and then
fails the query, which a busy machine reaches with the zip.

The folder belongs to one installed package: its name has the version and a digest of the package's place. It
is made beside its final name and renamed, so that two processes may make it at once. It holds links only.
YARN must not get it: there Spark uploads pyspark.zip to the cluster, which has to be a file.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tailrace.model import ConfigError

_PY4J = "py4j-*-src.zip"
_REPLACED = frozenset({"python", "__pycache__"})


def cache_dir() -> Path:
    """Where Tailrace keeps what it can make again: $XDG_CACHE_HOME/tailrace, else ~/.cache/tailrace."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "tailrace"


def make_spark_home(version: str, *, cache: Path | None = None) -> Path:
    """The folder for the installed pyspark, made if it is not there.

    Raises ConfigError if pyspark has no Spark in it, and OSError if the folder cannot be made.
    """
    package = _find_package("pyspark")
    if package is None or not (package / "jars").is_dir():
        raise ConfigError(f"the installed pyspark has no Spark in it ({package}). Try: pip install pyspark")
    digest = hashlib.sha256(str(package).encode()).hexdigest()[:8]
    home = (cache or cache_dir()) / f"spark-home-{version}-{digest}"
    if not _is_complete(home, package):
        home.parent.mkdir(parents=True, exist_ok=True)
        _make(home, package)
    return home


def _find_package(name: str) -> Path | None:
    """The folder of an installed package, which is not imported for it."""
    spec = find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _is_complete(home: Path, package: Path) -> bool:
    """Whether it leads to the package; one whose package was moved or replaced is made again."""
    linked = home / "python" / "lib" / "pyspark.zip" / "pyspark"
    names = {each.name for each in _linked(package)}
    try:
        return linked.samefile(package) and names <= set(os.listdir(home))
    except OSError:
        return False


def _linked(package: Path) -> list[Path]:
    """What of the package belongs into a SPARK_HOME: its folders that are no Python packages."""
    return [
        each
        for each in package.iterdir()
        if each.is_dir() and each.name not in _REPLACED and not (each / "__init__.py").exists()
    ]


def _make(home: Path, package: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as made:
        draft = Path(made) / "home"
        lib = draft / "python" / "lib"
        lib.mkdir(parents=True)
        for each in _linked(package):
            (draft / each.name).symlink_to(each)
        (draft / "python" / "pyspark").symlink_to(package)
        _link_into(lib / "pyspark.zip", package)
        py4j = _find_package("py4j")
        for archive in (package / "python" / "lib").glob(_PY4J):
            if py4j is None:
                (lib / archive.name).symlink_to(archive)
            else:
                _link_into(lib / archive.name, py4j)
        _put(draft, home, package)


def _link_into(folder: Path, package: Path) -> None:
    folder.mkdir()
    (folder / package.name).symlink_to(package)


def _put(draft: Path, home: Path, package: Path) -> None:
    """Give it its name, unless another process was faster; an incomplete one goes."""
    try:
        draft.rename(home)
    except OSError:
        if not home.is_dir():
            raise
        if not _is_complete(home, package):
            home.rename(draft.with_name("incomplete"))
            draft.rename(home)
