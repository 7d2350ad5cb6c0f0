"""Crashes of the segment engine, by the thousand: seeded histories on a simulated disk, checked by an oracle.

A history is several lives of one data directory. In each life the real engine recovers, is checked against
what was acknowledged, and serves random work until the process is killed, the power is cut, or a sync fails:
at a random disk call, in recovery too. `python -m tailrace.testing.crashes --help` runs them for as long as
wanted, and one seed again.

`oracle`   what was acknowledged, and whether what is there agrees with it
`history`  the lives, the work and the faults
`ciphertexts`  what an encrypted directory must not show
`forgery`  records that pretend to be rounds of the journal
"""

from tailrace.testing.crashes.history import Failed, History, Options, play, play_flipped, sweep
from tailrace.testing.crashes.oracle import Oracle, Wrong

__all__ = ["Failed", "History", "Options", "Oracle", "Wrong", "play", "play_flipped", "sweep"]
