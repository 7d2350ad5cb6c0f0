"""Histories of a whole broker with transactions on the simulated disk: producers, zombies, crashes.

`history.py`   lives of one broker, the work in each, and how each one ends: `play`
`producer.py`  one transactional producer, a process of its own that outlives the broker's
`oracle.py`    what every transaction wrote, how it was ended, and what readers may see of it
`ending.py`    one EndTxn with a crash at every disk call of it, and of what follows: `sweep_end`

Everything but the disk, the clock and the sockets is real: gate, coordinators, partitions, storage.
Requests are calls here, so none of them is late; what is late is played by zombies.
"""

from tailrace.testing.transfers.ending import EndShape, sweep_end
from tailrace.testing.transfers.history import Failed, Options, play
from tailrace.testing.transfers.oracle import Wrong

__all__ = ["EndShape", "Failed", "Options", "Wrong", "play", "sweep_end"]
