"""The log as DataFrames: what Tailrace is to Spark, through PySpark and without any jar.

    codec/   fetched bytes to Arrow and Arrow to record batches; needs pyarrow and numpy, not Spark

Nothing is imported here: pyspark, pyarrow and numpy come with `pip install 'tailrace[spark]'`, and whoever
does not use Spark never pays for them.
"""
