"""`python -m bench.spark`."""

from bench.spark.command import command

if __name__ == "__main__":
    command(prog_name="python -m bench.spark")
