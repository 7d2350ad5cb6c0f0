// KafkaJS as a driver; the protocol is told in ../../clients/driver.py.
//
// KafkaJS has no consumer without a group: an assigned one is the only member of a group of its own, and seeks.
'use strict'

const readline = require('node:readline')
const { randomUUID } = require('node:crypto')
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
const snappy = require('snappyjs')
const lz4 = require('lz4js')
const xxh32 = require('lz4js/xxh32.js')
const { ZstdCodec } = require('zstd-codec')

const XERIAL = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00])
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const kafka = new Kafka({
  clientId: 'kafkajs',
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 20 },
})
const producers = new Map()
const consumers = new Map()
let adminClient = null

const encode = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString('base64'))
const decode = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const pause = (ms) => new Promise((done) => setTimeout(done, ms))

function unpackSnappy(buffer) {
  if (!buffer.subarray(0, 8).equals(XERIAL)) return Buffer.from(snappy.uncompress(buffer))
  const parts = []
  for (let at = 16; at < buffer.length; ) {
    const size = buffer.readInt32BE(at)
    parts.push(Buffer.from(snappy.uncompress(buffer.subarray(at + 4, at + 4 + size))))
    at += 4 + size
  }
  return Buffer.concat(parts)
}

// lz4js does not say that blocks are independent, which the one block of a small batch is; Kafka asks for it.
function independent(frame) {
  frame[4] |= 0x20
  frame[6] = (xxh32.hash(0, frame, 4, 2) >> 8) & 0xff
  return frame
}

async function installCodecs() {
  CompressionCodecs[CompressionTypes.Snappy] = () => ({
    compress: async (encoder) => Buffer.from(snappy.compress(encoder.buffer)),
    decompress: async (buffer) => unpackSnappy(buffer),
  })
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: async (encoder) => independent(Buffer.from(lz4.compress(encoder.buffer))),
    decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
  })
  const zstd = await new Promise((found) => ZstdCodec.run((module) => found(new module.Streaming())))
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(zstd.compress(new Uint8Array(encoder.buffer))),
    decompress: async (buffer) => Buffer.from(zstd.decompress(new Uint8Array(buffer))),
  })
}

async function producerFor(idempotent) {
  if (!producers.has(idempotent)) {
    const producer = kafka.producer({ idempotent, maxInFlightRequests: idempotent ? 1 : null })
    await producer.connect()
    producers.set(idempotent, producer)
  }
  return producers.get(idempotent)
}

function headersOf(rows) {
  const headers = {}
  for (const [name, value] of rows) headers[name] = decode(value)
  return headers
}

async function admin() {
  if (adminClient === null) {
    adminClient = kafka.admin({ retry: { retries: 3 } })
    await adminClient.connect()
  }
  return adminClient
}

// KafkaJS makes one batch of what one call sends to a partition, however large.
function batchSize(messages) {
  let bytes = 0
  let count = 0
  while (count < messages.length && count < 100 && bytes < 300000) bytes += messages[count++].value?.length ?? 0
  return count
}

// What a call of send places, in the order of the messages: one report per partition, with its first offset.
function places(reports, messages) {
  const next = new Map()
  for (const report of reports) next.set(report.partition, Number(report.baseOffset))
  return messages.map((row) => {
    const partition = row.partition ?? reports[0].partition
    const offset = next.get(partition)
    next.set(partition, offset + 1)
    return [partition, offset]
  })
}

const commands = {
  async produce({ topic, messages, codec, acks, idempotent, every_ms, timeout_ms }) {
    const producer = await producerFor(idempotent)
    const placed = []
    while (messages.length > 0) {
      const part = messages.splice(0, every_ms ? 1 : batchSize(messages))
      const reports = await producer.send({
        topic,
        acks,
        timeout: timeout_ms,
        compression: CODECS[codec],
        messages: part.map((row) => ({
          key: decode(row.key),
          value: decode(row.value),
          headers: headersOf(row.headers),
          partition: row.partition ?? undefined,
          timestamp: row.timestamp_ms === null ? undefined : String(row.timestamp_ms),
        })),
      })
      if (acks !== 0) placed.push(...places(reports, part))
      if (every_ms) await pause(every_ms)
    }
    return placed
  },

  async open({ handle, assign, topics, pattern, group, reset, session_ms, fetch_bytes_max }) {
    const consumer = kafka.consumer({
      groupId: group ?? `assigned-${randomUUID()}`,
      sessionTimeout: session_ms,
      heartbeatInterval: 500,
      metadataMaxAge: 1000,
      maxWaitTimeInMs: 500,
      ...(fetch_bytes_max === null ? {} : { maxBytesPerPartition: fetch_bytes_max }),
    })
    const state = { consumer, rows: [], error: null, assigned: {}, revoked: [], wake: () => {} }
    consumers.set(handle, state)
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) state.error = payload.error
      state.wake()
    })
    const wanted = new Set((assign ?? []).map(([topic, partition]) => `${topic} ${partition}`))
    const joined = new Promise((done) => {
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
        state.assigned = payload.memberAssignment
        done()
      })
    })
    await consumer.connect()
    const subscribed = assign === null ? (pattern === null ? topics : [new RegExp(pattern)]) : assign.map((row) => row[0])
    await consumer.subscribe({ topics: [...new Set(subscribed)], fromBeginning: assign !== null || reset === 'earliest' })
    const ends = assign === null ? new Map() : await startOffsets(assign)
    await consumer.run({
      autoCommit: false,
      partitionsConsumedConcurrently: 1,
      eachMessage: async ({ topic, partition, message }) => {
        const place = `${topic} ${partition}`
        if (assign !== null) {
          // It read before it sought: what is not asked for, or was had already, is dropped.
          if (!wanted.has(place) || Number(message.offset) < ends.get(place)) return
          ends.set(place, Number(message.offset) + 1)
        }
        state.rows.push({
          topic,
          partition,
          offset: Number(message.offset),
          key: encode(message.key),
          value: encode(message.value),
          headers: Object.entries(message.headers ?? {}).map(([name, value]) => [name, encode(value)]),
          timestamp_ms: Number(message.timestamp),
        })
        state.wake()
      },
    })
    if (assign === null) return
    await joined
    for (const [topic, partition] of assign) {
      consumer.seek({ topic, partition, offset: String(ends.get(`${topic} ${partition}`)) })
    }
  },

  async poll({ handle, count, timeout_ms }) {
    const state = consumers.get(handle)
    const end = Date.now() + timeout_ms
    while (state.rows.length < count && Date.now() < end) {
      if (state.error !== null) throw state.error
      await new Promise((done) => {
        const timer = setTimeout(done, Math.max(1, end - Date.now()))
        state.wake = () => {
          clearTimeout(timer)
          done()
        }
      })
    }
    return state.rows.splice(0, count)
  },

  async assignment({ handle }) {
    const rows = []
    for (const [topic, partitions] of Object.entries(consumers.get(handle).assigned)) {
      for (const partition of partitions) rows.push([topic, partition])
    }
    return rows
  },

  async commit({ handle, offsets }) {
    await consumers.get(handle).consumer.commitOffsets(
      offsets.map(([topic, partition, offset, metadata]) => ({ topic, partition, offset: String(offset), metadata })),
    )
  },

  async close({ handle }) {
    const { consumer } = consumers.get(handle)
    consumers.delete(handle)
    await consumer.disconnect()
  },

  async create_topic({ topic, partitions, replication_factor, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const made = await (await admin()).createTopics({
      waitForLeaders: true,
      topics: [{ topic, numPartitions: partitions, replicationFactor: replication_factor, configEntries }],
    })
    if (!made) throw Object.assign(new Error('createTopics answered false: it exists'), { code: 36 })
  },

  async delete_topic({ topic }) {
    await (await admin()).deleteTopics({ topics: [topic] })
  },

  async topics() {
    const { topics } = await (await admin()).fetchTopicMetadata()
    return Object.fromEntries(topics.map(({ name, partitions }) => [name, partitions.length]))
  },

  async add_partitions({ topic, total }) {
    await (await admin()).createPartitions({ topicPartitions: [{ topic, count: total }] })
  },

  async configs({ topic }) {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }]
    const found = await (await admin()).describeConfigs({ resources, includeSynonyms: false })
    return Object.fromEntries(found.resources[0].configEntries.map((entry) => [entry.configName, entry.configValue]))
  },

  async set_config({ topic, name, value }) {
    const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name, value }] }]
    await (await admin()).alterConfigs({ validateOnly: false, resources })
  },

  async offset_at({ topic, partition, at }) {
    return offsetAt(topic, partition, at)
  },

  async delete_records({ topic, partition, before }) {
    await offsetAt(topic, partition, 'earliest') // deleting does not look for leaders that it does not know yet
    await (await admin()).deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    return offsetAt(topic, partition, 'earliest')
  },

  async groups() {
    return (await (await admin()).listGroups()).groups.map(({ groupId }) => groupId)
  },

  async describe_group({ group }) {
    const { groups } = await (await admin()).describeGroups([group])
    return { state: groups[0].state, protocol: groups[0].protocol, members: groups[0].members.length }
  },

  async group_offsets({ group }) {
    const rows = []
    for (const { topic, partitions } of await (await admin()).fetchOffsets({ groupId: group })) {
      for (const { partition, offset, metadata } of partitions) {
        rows.push([topic, partition, Number(offset), metadata ?? ''])
      }
    }
    return rows
  },

  async delete_group({ group }) {
    try {
      await (await admin()).deleteGroups([group])
    } catch (error) {
      throw error.groups?.[0]?.error ?? error
    }
  },
}

async function offsetAt(topic, partition, at) {
  if (typeof at === 'string') {
    const offsets = await (await admin()).fetchTopicOffsets(topic)
    const found = offsets.find((each) => each.partition === partition)
    return Number(at === 'earliest' ? found.low : found.high)
  }
  const offsets = await (await admin()).fetchTopicOffsetsByTimestamp(topic, at)
  return Number(offsets.find((each) => each.partition === partition).offset)
}

async function startOffsets(assign) {
  const ends = new Map()
  for (const [topic, partition, start] of assign) {
    const offset = typeof start === 'number' ? start : await offsetAt(topic, partition, start)
    ends.set(`${topic} ${partition}`, offset)
  }
  return ends
}

// KafkaJS wraps errors in errors; the innermost that has a code is the broker's.
function answerTo(error) {
  let code = null
  let text = error.message
  for (let each = error; each; each = each.cause ?? each.originalError ?? each.errors?.[0]) {
    if (Number.isInteger(each.code)) code = each.code
    text = `${each.name} ${each.type ?? ''}: ${each.message}`
  }
  return { error: text, code }
}

async function main() {
  await installCodecs()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { op, ...fields } = JSON.parse(line)
    let answer
    try {
      answer = { ok: (await commands[op](fields)) ?? null }
    } catch (error) {
      answer = answerTo(error)
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

process.removeAllListeners('warning')
main()
