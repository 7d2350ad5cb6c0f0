"""The soak: `python -m bench.soak`, or `make soak`. One broker, half of what it can take, twenty minutes.

A short calibration finds what a fresh, durable Tailrace takes of a mixed load; then the same load runs at
half of that, and once a second the broker is looked at from outside. What grows with time instead of with
load shows as a trend, and the trend is judged by arithmetic, not by eye.

`command`     the command line                        `run`       broker up, calibration, soak, broker down
`shape`       what the load is made of                `load`      the load in its own process
`pace`        when a request is due                   `lane`      a producer on one connection
`consumer`    a reader that waits at the end          `visit`     groups, connections, topics: come and gone
`connection`  one request at a time, for visits       `probe`     the event loop's lag, in its own process
`sampling`    what /proc says of the broker           `trend`     flat or not
`report`      figures, their JSON and Markdown        `page` `chart`  the same for people
"""
