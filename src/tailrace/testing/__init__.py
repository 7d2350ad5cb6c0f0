"""What a test of Tailrace, or of something built on it, may use.

`FakeClock`      a clock that stands still until a test moves it
`storage_suite`  the conformance suite of the storage port, for any engine
`simulation`     a virtual event loop and a disk that tears, forgets and lies, both seeded
"""

from tailrace.testing.clock import FakeClock

__all__ = ["FakeClock"]
