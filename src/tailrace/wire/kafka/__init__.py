"""The Kafka protocol as bytes: headers, messages of every served API and version, Produce and Fetch by hand.

    api.py              which APIs and versions there are
    frame.py            size prefix and headers
    messages/           one module per API: the schema, as classes; loaded on first use
    schema.py           the notation of those classes
    encoding.py         writes encoders from the schema, decoding.py decoders; codec.py keeps them
    produce.py          Produce, without copying records
    fetch.py            Fetch, without touching records
    partitioner.py      which partition a key goes to, as the Java client decides it
    assignor.py         how a group's leader shares partitions out, and the bytes that members exchange

No I/O, no state beyond the compiled codecs. Whatever a stranger's bytes hold, reading them gives a message or
raises ProtocolError, and costs no more than a multiple of their length.
"""

from tailrace.wire.kafka.api import (
    API_VERSIONS,
    APIS,
    FETCH,
    FRAME_BYTES_MAX,
    PRODUCE,
    Api,
    request_type,
    response_type,
)
from tailrace.wire.kafka.codec import Decoder, Encoder, decode, decoder, encode, encoder
from tailrace.wire.kafka.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    FetchTopic,
    TopicRef,
    fetch_response_size,
    read_fetch_request,
    read_fetch_response,
    write_fetch_request,
    write_fetch_response,
)
from tailrace.wire.kafka.frame import (
    RequestHeader,
    read_request_header,
    read_response_head,
    write_request,
    write_request_head,
    write_response_head,
)
from tailrace.wire.kafka.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
    ProduceTopic,
    read_produce_request,
    read_produce_response,
    write_produce_request,
    write_produce_response,
)
from tailrace.wire.kafka.schema import ZERO_UUID, Message

__all__ = [
    "APIS",
    "API_VERSIONS",
    "FETCH",
    "FRAME_BYTES_MAX",
    "PRODUCE",
    "ZERO_UUID",
    "Api",
    "Decoder",
    "Encoder",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchResult",
    "FetchTopic",
    "Message",
    "ProducePartition",
    "ProduceRequest",
    "ProduceResponse",
    "ProduceResult",
    "ProduceTopic",
    "RequestHeader",
    "TopicRef",
    "decode",
    "decoder",
    "encode",
    "encoder",
    "fetch_response_size",
    "read_fetch_request",
    "read_fetch_response",
    "read_produce_request",
    "read_produce_response",
    "read_request_header",
    "read_response_head",
    "request_type",
    "response_type",
    "write_fetch_request",
    "write_fetch_response",
    "write_produce_request",
    "write_produce_response",
    "write_request",
    "write_request_head",
    "write_response_head",
]
