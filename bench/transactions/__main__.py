"""`python -m bench.transactions`."""

from bench.transactions.command import command

command()
