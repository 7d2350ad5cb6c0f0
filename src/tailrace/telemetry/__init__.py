"""OpenTelemetry: what a node does, sent to a collector by OTLP over HTTP. Off unless an endpoint is set.

`config`        where to, what, how often
`tracing`       spans of requests: of every one by HTTP, of a few by the other listeners
`figure`        the families of /metrics as OTLP has them: nothing is counted twice
`destination`   the collector, spoken to from a `thread` that no end waits for
`export`        the task that sends both, and says when it cannot

It needs `pip install 'tailrace[otel]'`. A node without an endpoint imports nothing of this, and starts
neither task nor thread. What cannot be delivered is dropped: a collector that is away costs a bounded amount
of memory, and no request waits for it. Headers of records are their users': a `traceparent` in one is passed
on as it came.

This package imports nothing of itself here.
"""
