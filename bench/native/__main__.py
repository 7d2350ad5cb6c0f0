"""`python -m bench.native`."""

from bench.native.command import command

if __name__ == "__main__":
    command(prog_name="python -m bench.native")
