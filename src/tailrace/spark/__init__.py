"""The log as DataFrames: what Tailrace is to Spark, through PySpark and without any jar.

    codec/           fetched bytes to Arrow and Arrow to record batches; needs pyarrow and numpy, not Spark
    link.py          a client of the broker for callers that block, one per process
    admission.py     how much a batch takes, and how it is cut into tasks of `offset_range.py`
    reading.py       a range of offsets as Arrow rows, fetched ahead
    producing.py     Arrow rows to partitions, each in order and once; `lane.py` is one partition of that
    transacting.py   transactions that a task opens, and that the driver of its write ends
    value/           the types of values: schemas as users declare them, and values decoded without a jar
    encryption.py    encrypted messages in source and sink; decryption.py: `decrypt` for columns and SQL
    options.py       options by name, and what is said of a wrong one
    source/, sink/   the data source `tailrace`; Spark finds it through the module `pyspark_tailrace`
    lake/            tables of Parquet files: a manifest of ours, Delta Lake, Iceberg; no Spark in it
    pipelines/       archive, replay, sql, compact, report, and what runs them

Nothing is imported here before `decrypt` or `register_decrypt` is named: pyspark, pyarrow and numpy come with
`pip install 'tailrace[spark]'`, and a program that does not use Spark never pays for them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.spark.decryption import decrypt, register_decrypt

__all__ = ["INSTALL_SPARK", "decrypt", "register_decrypt"]

INSTALL_SPARK = "pip install 'tailrace[spark]'; in a clone of the repository: make install"
"""The way out of every error that says that something of Spark is not installed."""


def __getattr__(name: str) -> object:
    if name in ("decrypt", "register_decrypt"):
        from tailrace.spark import decryption

        return getattr(decryption, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
