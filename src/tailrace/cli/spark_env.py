"""`tailrace spark-env`: the variables with which notebooks and spark-submit start Spark's Pythons faster."""

from __future__ import annotations

import os
import shlex
import sys

import rich_click as click

from tailrace.cli.exit import CommandFailed
from tailrace.cli.output import Output, examples, output_option


@click.command(
    name="spark-env",
    epilog=examples(
        'eval "$(tailrace spark-env)"',
        'eval "$(tailrace spark-env)"; spark-submit job.py',
        "tailrace spark-env -o json",
    ),
)
@output_option
def command(output: Output) -> None:
    """Print what lets notebooks and spark-submit start Spark faster.

    SPARK_HOME names a folder of links to the installed pyspark, made in the user's cache, in which
    pyspark.zip is a folder: a Python that Spark starts then takes about a third of the processor time.
    PYSPARK_PYTHON names the Python that has Tailrace, unless it is set already. Pipelines do both by
    themselves. Do not use it with YARN, which uploads pyspark.zip.
    """
    from tailrace.spark.pipelines.session import check_spark
    from tailrace.spark.pipelines.spark_home import cache_dir, make_spark_home

    version = check_spark(java=False)
    try:
        home = make_spark_home(version)
    except OSError as error:
        raise CommandFailed(
            f"cannot make a SPARK_HOME in {cache_dir()}: {error.strerror}. "
            "Name another place with XDG_CACHE_HOME"
        ) from error
    variables = {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
    }
    if output.format != "table":
        output.record(variables)
        return
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")
