"""Makes `format("tailrace")` known to Spark, which looks for modules named pyspark_* by itself."""

from tailrace.spark.source.data_source import TailraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
