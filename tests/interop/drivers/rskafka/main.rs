// rskafka as a driver; the protocol is told in ../../clients/driver.py.
//
// It has a client per partition and no groups, so its consumers read when they are asked.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::{engine::general_purpose::STANDARD, Engine};
use chrono::{DateTime, Utc};
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use rskafka::BackoffConfig;
use serde_json::{json, Value};

type Failure = Box<dyn std::error::Error>;

struct Position {
    topic: String,
    partition: i32,
    client: Arc<PartitionClient>,
    next: i64,
}

struct Consumer {
    positions: Vec<Position>,
    bytes_max: i32,
    rows: Vec<Value>,
}

struct Driver {
    client: Client,
    partitions: HashMap<(String, i32), Arc<PartitionClient>>,
    consumers: HashMap<String, Consumer>,
}

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bootstrap = std::env::args().nth(1).ok_or("no bootstrap")?;
    runtime.block_on(async {
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_millis(500),
            deadline: Some(Duration::from_secs(20)),
            ..Default::default()
        };
        let client = ClientBuilder::new(vec![bootstrap]).backoff_config(backoff).build().await?;
        let mut driver = Driver { client, partitions: HashMap::new(), consumers: HashMap::new() };
        for line in std::io::stdin().lock().lines() {
            let command: Value = serde_json::from_str(&line?)?;
            let answer = match driver.answer(&command).await {
                Ok(result) => json!({ "ok": result }),
                Err(error) => json!({ "error": error.to_string(), "code": code(error.as_ref()) }),
            };
            println!("{answer}");
            std::io::stdout().flush()?;
        }
        Ok(())
    })
}

impl Driver {
    async fn answer(&mut self, command: &Value) -> Result<Value, Failure> {
        match text(&command["op"]) {
            "produce" => self.produce(command).await,
            "open" => self.open(command).await,
            "poll" => self.poll(command).await,
            "close" => {
                self.consumers.remove(text(&command["handle"]));
                Ok(Value::Null)
            }
            "create_topic" => {
                let partitions = command["partitions"].as_i64().unwrap_or(1) as i32;
                let replicas = command["replication_factor"].as_i64().unwrap_or(1) as i16;
                let controller = self.client.controller_client()?;
                controller.create_topic(text(&command["topic"]), partitions, replicas, 5000).await?;
                Ok(Value::Null)
            }
            "delete_topic" => {
                let controller = self.client.controller_client()?;
                controller.delete_topic(text(&command["topic"]), 5000).await?;
                Ok(Value::Null)
            }
            "topics" => {
                let topics = self.client.list_topics().await?;
                Ok(topics.into_iter().map(|topic| (topic.name, json!(topic.partitions.len()))).collect())
            }
            "offset_at" => {
                let partition = self.partition(command).await?;
                Ok(json!(partition.get_offset(at(&command["at"])?).await?))
            }
            "delete_records" => {
                let partition = self.partition(command).await?;
                partition.delete_records(command["before"].as_i64().ok_or("no offset")?, 5000).await?;
                Ok(json!(partition.get_offset(OffsetAt::Earliest).await?))
            }
            other => Err(format!("no such command: {other}").into()),
        }
    }

    async fn partition(&mut self, place: &Value) -> Result<Arc<PartitionClient>, Failure> {
        let partition = place["partition"].as_i64().ok_or("no partition")? as i32;
        self.partition_of(text(&place["topic"]), partition).await
    }

    async fn partition_of(&mut self, topic: &str, partition: i32) -> Result<Arc<PartitionClient>, Failure> {
        let key = (topic.to_string(), partition);
        if let Some(found) = self.partitions.get(&key) {
            return Ok(found.clone());
        }
        let made = self.client.partition_client(topic, partition, UnknownTopicHandling::Retry).await?;
        let shared = Arc::new(made);
        self.partitions.insert(key, shared.clone());
        Ok(shared)
    }

    async fn produce(&mut self, command: &Value) -> Result<Value, Failure> {
        let codec = match text(&command["codec"]) {
            "gzip" => Compression::Gzip,
            "snappy" => Compression::Snappy,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            _ => Compression::NoCompression,
        };
        let mut placed = Vec::new();
        let messages = command["messages"].as_array().ok_or("no messages")?;
        let mut at = 0;
        while at < messages.len() {
            // A run of messages for one partition is one batch, up to a size that any broker takes.
            let partition = &messages[at]["partition"];
            let mut records = Vec::new();
            let mut bytes = 0;
            while at < messages.len() && &messages[at]["partition"] == partition && bytes < 300_000 {
                let record = record(&messages[at])?;
                bytes += record.approximate_size();
                records.push(record);
                at += 1;
            }
            let place = json!({ "topic": command["topic"], "partition": partition });
            let offsets = self.partition(&place).await?.produce(records, codec).await?;
            placed.extend(offsets.into_iter().map(|offset| json!([partition, offset])));
        }
        Ok(Value::Array(placed))
    }

    async fn open(&mut self, command: &Value) -> Result<Value, Failure> {
        let mut positions = Vec::new();
        for row in command["assign"].as_array().ok_or("it has no groups")? {
            let (topic, partition) = (text(&row[0]), row[1].as_i64().unwrap_or(0) as i32);
            let client = self.partition_of(topic, partition).await?;
            let next = match row[2].as_i64() {
                Some(offset) => offset,
                None => client.get_offset(at(&row[2])?).await?,
            };
            positions.push(Position { topic: topic.to_string(), partition, client, next });
        }
        let bytes_max = command["fetch_bytes_max"].as_i64().unwrap_or(1_000_000) as i32;
        let consumer = Consumer { positions, bytes_max, rows: Vec::new() };
        self.consumers.insert(text(&command["handle"]).to_string(), consumer);
        Ok(Value::Null)
    }

    async fn poll(&mut self, command: &Value) -> Result<Value, Failure> {
        let consumer = self.consumers.get_mut(text(&command["handle"])).ok_or("no such consumer")?;
        let count = command["count"].as_u64().unwrap_or(0) as usize;
        let end = Instant::now() + Duration::from_millis(command["timeout_ms"].as_u64().unwrap_or(0));
        while consumer.rows.len() < count && Instant::now() < end {
            for position in &mut consumer.positions {
                let (found, _) =
                    position.client.fetch_records(position.next, 1..consumer.bytes_max, 100).await?;
                for each in found {
                    position.next = each.offset + 1;
                    consumer.rows.push(row(position, each.offset, each.record));
                }
            }
        }
        let taken = count.min(consumer.rows.len());
        Ok(Value::Array(consumer.rows.drain(..taken).collect()))
    }
}

fn record(row: &Value) -> Result<Record, Failure> {
    let mut headers = BTreeMap::new();
    for header in row["headers"].as_array().into_iter().flatten() {
        headers.insert(text(&header[0]).to_string(), decode(&header[1])?.unwrap_or_default());
    }
    let timestamp = match row["timestamp_ms"].as_i64() {
        Some(ms) => time(ms)?,
        None => time(now_ms()?)?,
    };
    Ok(Record { key: decode(&row["key"])?, value: decode(&row["value"])?, headers, timestamp })
}

fn row(position: &Position, offset: i64, record: Record) -> Value {
    let headers: Vec<Value> =
        record.headers.iter().map(|(name, value)| json!([name, STANDARD.encode(value)])).collect();
    json!({
        "topic": position.topic,
        "partition": position.partition,
        "offset": offset,
        "timestamp_ms": record.timestamp.timestamp_millis(),
        "key": record.key.map(|data| STANDARD.encode(data)),
        "value": record.value.map(|data| STANDARD.encode(data)),
        "headers": headers,
    })
}

fn at(value: &Value) -> Result<OffsetAt, Failure> {
    Ok(match value.as_i64() {
        Some(ms) => OffsetAt::Timestamp(time(ms)?),
        None if text(value) == "earliest" => OffsetAt::Earliest,
        None => OffsetAt::Latest,
    })
}

fn time(ms: i64) -> Result<DateTime<Utc>, Failure> {
    DateTime::from_timestamp_millis(ms).ok_or_else(|| "no such time".into())
}

fn now_ms() -> Result<i64, Failure> {
    Ok(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis() as i64)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn decode(value: &Value) -> Result<Option<Vec<u8>>, Failure> {
    value.as_str().map(|text| STANDARD.decode(text)).transpose().map_err(Into::into)
}

// Kafka's number of an error: rskafka gives the name only, and makes the name from the number.
fn code(error: &(dyn std::error::Error + 'static)) -> Option<i16> {
    match error.downcast_ref::<Error>()? {
        Error::ServerError { protocol_error, .. } => {
            (-1..120).find(|number| ProtocolError::new(*number).as_ref() == Some(protocol_error))
        }
        _ => None,
    }
}
