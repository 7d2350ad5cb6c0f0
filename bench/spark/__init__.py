"""Topics through Spark with a broker of its own: `python -m bench.spark`, or `make bench-spark`.

The loads are those of `tailrace bench spark`: tailrace.bench.spark. Here a broker is started for them, with
an empty directory, and the report is kept as JSON, Markdown and a page. `--broker kafka` starts Apache Kafka
instead, from Maven: the same two sources, reading from it.

`command`  the command line         `table`  the report for people
"""
