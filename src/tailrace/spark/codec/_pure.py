"""The functions that touch every row, with numpy and Arrow's own kernels: the twin that is always there.

`_compiled.pyx` holds the same functions with the same results and the same refusals; a change here is a
change there. The layout of a record is in tailrace/records/_pure.py.
"""

from tailrace.spark.codec._pure_decode import read_columns
from tailrace.spark.codec._pure_encode import hash_keys, write_payloads

__all__ = ["hash_keys", "read_columns", "write_payloads"]
