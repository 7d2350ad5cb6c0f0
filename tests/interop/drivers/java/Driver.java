// The Java client as a driver; the protocol is told in ../../clients/driver.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Function;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.*;

public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int ADMIN_S = 20;

    private final String bootstrap;
    private final Map<List<Object>, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<String, Reader> readers = new HashMap<>();
    private Admin adminClient;

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver(arguments[0]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", JSON.valueToTree(driver.answer(JSON.readTree(line))));
            } catch (Exception error) {
                Throwable cause = error;
                while (cause instanceof ExecutionException && cause.getCause() != null) cause = cause.getCause();
                answer.put("error", cause.toString());
                Errors known = Errors.forException(cause);
                if (known != Errors.UNKNOWN_SERVER_ERROR) answer.put("code", known.code());
            }
            System.out.println(JSON.writeValueAsString(answer));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private Object answer(JsonNode command) throws Exception {
        String topic = command.path("topic").asText();
        String group = command.path("group").asText();
        Reader reader = readers.get(command.path("handle").asText());
        switch (command.get("op").asText()) {
            case "produce": return produce(command);
            case "open": open(command); return null;
            case "poll": return reader.take(command.get("count").asInt(), command.get("timeout_ms").asLong());
            case "assignment": return reader.call(consumer -> rows(consumer.assignment()));
            case "revoked": return rows(reader.revoked);
            case "commit": commit(reader, command.get("offsets")); return null;
            case "close": readers.remove(command.get("handle").asText()).close(); return null;
            case "create_topic": createTopic(command); return null;
            case "delete_topic": wait(admin().deleteTopics(List.of(topic)).all()); return null;
            case "topics": return topics();
            case "add_partitions":
                wait(admin().createPartitions(
                    Map.of(topic, NewPartitions.increaseTo(command.get("total").asInt()))).all());
                return null;
            case "configs": return configs(topic);
            case "set_config":
                setConfig(topic, command.get("name").asText(), command.get("value").asText());
                return null;
            case "offset_at": return offsetAt(command);
            case "delete_records": return deleteRecords(command);
            case "groups":
                return wait(admin().listConsumerGroups().all()).stream().map(ConsumerGroupListing::groupId).toList();
            case "describe_group": return describeGroup(group);
            case "group_offsets": return groupOffsets(group);
            case "delete_group": wait(admin().deleteConsumerGroups(List.of(group)).all()); return null;
            default: throw new IllegalArgumentException(command.toString());
        }
    }

    private List<List<Object>> produce(JsonNode command) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(command);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode row : command.get("messages")) {
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                command.get("topic").asText(),
                row.get("partition").isNull() ? null : row.get("partition").asInt(),
                row.get("timestamp_ms").isNull() ? null : row.get("timestamp_ms").asLong(),
                decode(row.get("key")),
                decode(row.get("value")));
            for (JsonNode header : row.get("headers")) {
                record.headers().add(header.get(0).asText(), decode(header.get(1)));
            }
            sent.add(producer.send(record));
            if (command.get("every_ms").asInt() > 0) Thread.sleep(command.get("every_ms").asInt());
        }
        List<List<Object>> placed = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            RecordMetadata report = each.get(ADMIN_S, TimeUnit.SECONDS);
            placed.add(List.of(report.partition(), report.offset()));
        }
        return placed;
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode how) {
        int timeout = how.get("timeout_ms").asInt();
        List<Object> key = List.of(
            how.get("codec").asText(), how.get("acks").asInt(), how.get("idempotent").asBoolean(),
            how.get("linger_ms").asInt(), how.get("bytes_max").asInt(), timeout);
        return producers.computeIfAbsent(key, missing -> {
            Map<String, Object> config = common();
            config.put("compression.type", how.get("codec").asText());
            config.put("acks", how.get("acks").asText());
            config.put("enable.idempotence", how.get("idempotent").asBoolean());
            config.put("linger.ms", how.get("linger_ms").asInt());
            config.put("max.request.size", how.get("bytes_max").asInt());
            config.put("request.timeout.ms", 5000);
            config.put("delivery.timeout.ms", Math.max(timeout, 6000));
            return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        });
    }

    private void open(JsonNode command) throws Exception {
        Map<String, Object> config = common();
        boolean subscribes = command.get("assign").isNull();
        if (subscribes) config.put("group.id", command.get("group").asText());
        if (!command.get("instance_id").isNull()) config.put("group.instance.id", command.get("instance_id").asText());
        if (!command.get("fetch_bytes_max").isNull()) {
            config.put("max.partition.fetch.bytes", command.get("fetch_bytes_max").asInt());
        }
        config.put("enable.auto.commit", false);
        config.put("auto.offset.reset", command.get("reset").asText());
        config.put("session.timeout.ms", command.get("session_ms").asInt());
        config.put("heartbeat.interval.ms", 500);
        config.put("metadata.max.age.ms", 1000);
        config.put("partition.assignment.strategy", command.get("strategy").asText().equals("range")
            ? "org.apache.kafka.clients.consumer.RangeAssignor"
            : "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Reader reader = new Reader(consumer);
        if (!subscribes) {
            takePosition(consumer, command.get("assign"));
        } else if (!command.get("pattern").isNull()) {
            consumer.subscribe(Pattern.compile(command.get("pattern").asText()), reader);
        } else {
            List<String> names = new ArrayList<>();
            command.get("topics").forEach(name -> names.add(name.asText()));
            consumer.subscribe(names, reader);
        }
        readers.put(command.get("handle").asText(), reader);
        reader.start();
    }

    private static void takePosition(KafkaConsumer<byte[], byte[]> consumer, JsonNode assign) {
        List<TopicPartition> wanted = new ArrayList<>();
        assign.forEach(row -> wanted.add(new TopicPartition(row.get(0).asText(), row.get(1).asInt())));
        consumer.assign(wanted);
        for (JsonNode row : assign) {
            TopicPartition where = new TopicPartition(row.get(0).asText(), row.get(1).asInt());
            if (row.get(2).isNumber()) consumer.seek(where, row.get(2).asLong());
            else if (row.get(2).asText().equals("earliest")) consumer.seekToBeginning(List.of(where));
            else consumer.seekToEnd(List.of(where));
            consumer.position(where, Duration.ofSeconds(ADMIN_S));
        }
    }

    private static void commit(Reader reader, JsonNode offsets) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> rows = new HashMap<>();
        for (JsonNode row : offsets) {
            rows.put(new TopicPartition(row.get(0).asText(), row.get(1).asInt()),
                new OffsetAndMetadata(row.get(2).asLong(), row.get(3).asText()));
        }
        reader.call(consumer -> {
            consumer.commitSync(rows);
            return null;
        });
    }

    private void createTopic(JsonNode command) throws Exception {
        Map<String, String> configs = new HashMap<>();
        command.get("configs").fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        NewTopic topic = new NewTopic(command.get("topic").asText(), command.get("partitions").asInt(),
            (short) command.get("replication_factor").asInt()).configs(configs);
        wait(admin().createTopics(List.of(topic)).all());
    }

    private Map<String, Integer> topics() throws Exception {
        Set<String> names = wait(admin().listTopics().names());
        Map<String, Integer> found = new HashMap<>();
        wait(admin().describeTopics(names).allTopicNames())
            .forEach((name, description) -> found.put(name, description.partitions().size()));
        return found;
    }

    private Map<String, String> configs(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> found = new HashMap<>();
        wait(admin().describeConfigs(List.of(resource)).all()).get(resource).entries()
            .forEach(entry -> found.put(entry.name(), entry.value()));
        return found;
    }

    private void setConfig(String topic, String name, String value) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        wait(admin().incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
    }

    private long offsetAt(JsonNode command) throws Exception {
        TopicPartition where = new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
        JsonNode at = command.get("at");
        OffsetSpec spec = at.isNumber() ? OffsetSpec.forTimestamp(at.asLong())
            : at.asText().equals("earliest") ? OffsetSpec.earliest() : OffsetSpec.latest();
        return wait(admin().listOffsets(Map.of(where, spec)).partitionResult(where)).offset();
    }

    private long deleteRecords(JsonNode command) throws Exception {
        TopicPartition where = new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
        RecordsToDelete before = RecordsToDelete.beforeOffset(command.get("before").asLong());
        return wait(admin().deleteRecords(Map.of(where, before)).lowWatermarks().get(where)).lowWatermark();
    }

    private Map<String, Object> describeGroup(String group) throws Exception {
        ConsumerGroupDescription found =
            wait(admin().describeConsumerGroups(List.of(group)).describedGroups().get(group));
        return Map.of("state", found.state().toString(), "protocol", found.partitionAssignor(),
            "members", found.members().size());
    }

    private List<List<Object>> groupOffsets(String group) throws Exception {
        List<List<Object>> rows = new ArrayList<>();
        wait(admin().listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).forEach((where, offset) ->
            rows.add(List.of(where.topic(), where.partition(), offset.offset(), offset.metadata())));
        return rows;
    }

    private Map<String, Object> common() {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("reconnect.backoff.max.ms", 500);
        return config;
    }

    private Admin admin() {
        if (adminClient == null) adminClient = Admin.create(common());
        return adminClient;
    }

    private static <T> T wait(KafkaFuture<T> future) throws Exception {
        return future.get(ADMIN_S, TimeUnit.SECONDS);
    }

    private static List<List<Object>> rows(Collection<TopicPartition> partitions) {
        List<List<Object>> rows = new ArrayList<>();
        partitions.forEach(each -> rows.add(List.of(each.topic(), each.partition())));
        return rows;
    }

    private static byte[] decode(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String encode(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    // A consumer and the one thread that uses it: it reads, and between two reads does what it is asked to.
    private static final class Reader implements ConsumerRebalanceListener, Runnable {
        final List<TopicPartition> revoked = new CopyOnWriteArrayList<>();
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final LinkedBlockingQueue<Object> read = new LinkedBlockingQueue<>();
        private final LinkedBlockingQueue<FutureTask<?>> asked = new LinkedBlockingQueue<>();
        private final Thread thread = new Thread(this);
        private volatile boolean ended = false;

        Reader(KafkaConsumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
            thread.setDaemon(true);
        }

        void start() {
            thread.start();
        }

        <T> T call(Function<KafkaConsumer<byte[], byte[]>, T> what) throws Exception {
            FutureTask<T> task = new FutureTask<>(() -> what.apply(consumer));
            asked.add(task);
            return task.get(40, TimeUnit.SECONDS);
        }

        List<Object> take(int count, long timeoutMs) throws Exception {
            long end = System.nanoTime() + timeoutMs * 1_000_000;
            List<Object> rows = new ArrayList<>();
            while (rows.size() < count) {
                Object row = read.poll(Math.max(0, end - System.nanoTime()), TimeUnit.NANOSECONDS);
                if (row == null) break;
                if (row instanceof Exception) throw (Exception) row;
                rows.add(row);
            }
            return rows;
        }

        void close() throws Exception {
            ended = true;
            thread.join(30_000);
        }

        @Override
        public void run() {
            while (!ended) {
                try {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) read.add(row(record));
                } catch (Exception error) {
                    read.add(error);
                    pause();
                }
                for (FutureTask<?> task = asked.poll(); task != null; task = asked.poll()) task.run();
            }
            consumer.close(Duration.ofSeconds(10));
        }

        private static void pause() {
            try {
                Thread.sleep(200);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (!ended) revoked.addAll(partitions);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

        private static ObjectNode row(ConsumerRecord<byte[], byte[]> record) {
            ObjectNode row = JSON.createObjectNode();
            row.put("topic", record.topic());
            row.put("partition", record.partition());
            row.put("offset", record.offset());
            row.put("timestamp_ms", record.timestamp());
            row.put("key", encode(record.key()));
            row.put("value", encode(record.value()));
            ArrayNode headers = row.putArray("headers");
            for (Header header : record.headers()) headers.addArray().add(header.key()).add(encode(header.value()));
            return row;
        }
    }
}
