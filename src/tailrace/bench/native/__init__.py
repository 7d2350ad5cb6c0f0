"""Native messaging under load: publishes that are waited for, deliveries that are acknowledged.

`messaging`   what a load needs of a broker, whichever it is
`load`        the loads themselves
`subject`     Tailrace by its own client
`run`         every load of `tailrace bench native`, against one broker that already runs
`report`      what it found

Beside `src`, the package `bench.native` runs the same loads against other brokers.
"""
