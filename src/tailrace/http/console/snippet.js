// How to get the same message elsewhere: on the command line, with curl, in Python.

import { path, query, root } from "./api.js";

const quoted = (text) => `'${String(text).replaceAll("'", `'\\''`)}'`;

export function commandLine(record, address) {
  const where = address ? ` -b ${address}` : "";
  return `tailrace tail ${record.topic} -p ${record.partition} --offset ${record.offset} -n 1 --no-follow${where}`;
}

export function curl(record) {
  const where = path`/api/v1/topics/${record.topic}/records`;
  const which = query({ partition: record.partition, offset: record.offset, limit: 1 });
  return `curl ${quoted(location.origin + root + where + which)}`;
}

export function python(record, address) {
  return `from confluent_kafka import Consumer, TopicPartition

consumer = Consumer({
    "bootstrap.servers": "${address || "127.0.0.1:9092"}",
    "group.id": "look",  # which is asked for, and leaves nothing behind
    "enable.auto.commit": False,
})
consumer.assign([TopicPartition(${JSON.stringify(record.topic)}, ${record.partition}, ${record.offset})])
message = consumer.poll(10)
print(message.offset(), message.key(), message.value())
consumer.close()
`;
}
