"""One Kafka API per module, named as the API is: `create_topics` serves CreateTopics.

A handler module opens with what the API does and what each version changed. It offers

    KEY = 19                                                              the API's number
    async def handle(call: Call, request: XRequest) -> XResponse          or a plain def, if it never waits

and dispatch finds it by that: the key says which request is decoded and which versions are served
(`tailrace.wire.kafka.APIS`). A handler translates and decides nothing that another listener would decide too;
that belongs to the broker. `call.access` decides whether an object exists and whether the client may use it.
A handler turns what is `ANSWERABLE` into the error code of the item that met it, one `try` per item, and lets
everything else pass. Version differences that the encoding takes care of (fields left out, null as empty)
need no code.
"""
