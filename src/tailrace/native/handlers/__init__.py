"""What each request of the native protocol does, in modules by subject.

`greeting`       HEARTBEAT, AUTH
`topic`          CREATE_TOPIC
`subscription`   CREATE_SUBSCRIPTION, DELETE_SUBSCRIPTION, REPLAY, REDRIVE
`joining`        SUBSCRIBE, UNSUBSCRIBE, CREDIT, PULL
`settling`       ACK, NACK, EXTEND
`transaction`    TXN_BEGIN, TXN_COMMIT, TXN_ABORT
`describing`     DESCRIBE

A handler gets the protocol and the frame. It replies, or starts something that will, or raises BrokerError.
"""
