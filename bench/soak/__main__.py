"""`python -m bench.soak`."""

from bench.soak.command import command

if __name__ == "__main__":
    command(prog_name="python -m bench.soak")
