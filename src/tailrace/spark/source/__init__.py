"""`spark.read.format("tailrace")` and `spark.readStream.format("tailrace")`.

    data_source.py   the class that Spark finds and asks for readers and writers
    settings.py      the options of a read, checked; place.py: where it starts and ends
    lookup.py        which partitions there are and what their offsets are: everything asked of the broker
    batch.py         a batch read, planned once; predicate.py: the filters that Spark pushes down
    stream.py        a streaming read; offset.py: its offsets as JSON; trigger.py: what a batch takes
    task.py          ranges to Spark's partitions, and a partition's rows in the worker
    value_option.py  the options that have values decoded; value_reading.py: a task's rows with that
    group.py         a stream's progress as a consumer group

Planning is pure and has its own modules; batch.py, stream.py and data_source.py alone import pyspark.
"""
