"""Messages that the broker cannot read: written by a native client, read by a consumer of the Kafka protocol.

    (umask 077; head -c 32 /dev/urandom > k1.key)
    tailrace up &
    python examples/encryption/sealed_orders.py k1.key

Arguments: the file of the key, and where the broker is if it is not on its usual ports:
`sealed_orders.py KEY [BOOTSTRAP NATIVE_PORT]`.
"""

from __future__ import annotations

import sys

from tailrace.client import BrokerClient, Encryption, MessageConsumer


def main(key: str, bootstrap: str = "127.0.0.1:9092", native_port: str = "9999") -> None:
    encryption = Encryption(keys={"k1": key}, active="k1")
    with BrokerClient(port=int(native_port), encryption=encryption) as client:
        client.publish("sealed-orders", b"three boxes of tea", key="customer-7")

    properties = {"bootstrap.servers": bootstrap, "group.id": "sealed-readers"}
    with MessageConsumer(properties, encryption=encryption) as consumer:
        consumer.subscribe(["sealed-orders"])
        while not (records := consumer.poll(500)):
            pass
        for record in records:
            print(record.key, record.value)

    with MessageConsumer({"bootstrap.servers": bootstrap, "group.id": "curious"}) as consumer:
        consumer.subscribe(["sealed-orders"])
        while not (records := consumer.poll(500)):
            pass
        print("without the key:", records[0].value.hex())


if __name__ == "__main__":
    main(*sys.argv[1:])
