"""Measurements of the tiered engine's ack path, on a PostgreSQL of their own: `python -m bench.tiered`."""
