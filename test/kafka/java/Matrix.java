import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Does one job with Kafka's Java clients: {@code Matrix JOB key=value...}. The jobs and what they print are those of
 * test/clients/golang/job.go. It compiles with the clients of 3.x and of 4.x.
 */
public final class Matrix {
    private static final int COPIED = 5;

    private Matrix() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> job = new HashMap<>();
        for (int i = 1; i < args.length; i++) {
            int at = args[i].indexOf('=');
            job.put(args[i].substring(0, at), args[i].substring(at + 1));
        }
        switch (args[0]) {
            case "produce" -> produce(job);
            case "transact" -> transact(job);
            case "members" -> members(job);
            case "admin" -> admin(job);
            case "throttle" -> throttle(job);
            default -> throw new IllegalArgumentException("unknown job: " + args[0]);
        }
    }

    private static synchronized void say(Object... fields) {
        StringBuilder line = new StringBuilder();
        for (Object field : fields) {
            line.append(line.length() == 0 ? "" : " ").append(String.valueOf(field).replace('\n', ' '));
        }
        System.out.println(line);
        System.out.flush();
    }

    private static Properties client(Map<String, String> job, String... pairs) {
        Properties p = new Properties();
        p.setProperty("client.id", job.get("name"));
        p.setProperty("bootstrap.servers", job.get("bootstrap"));
        for (int i = 0; i < pairs.length; i += 2) {
            p.setProperty(pairs[i], pairs[i + 1]);
        }
        return p;
    }

    private static KafkaProducer<String, String> producer(Map<String, String> job, String... pairs) {
        return new KafkaProducer<>(client(job, pairs), new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(Map<String, String> job, String... pairs) {
        return new KafkaConsumer<>(client(job, pairs), new StringDeserializer(), new StringDeserializer());
    }

    private static void produce(Map<String, String> job) throws Exception {
        boolean plain = "plain".equals(job.get("mode"));
        int from = Integer.parseInt(job.getOrDefault("from", "0"));
        int count = Integer.parseInt(job.get("count"));
        try (KafkaProducer<String, String> producer = producer(job, "compression.type", job.getOrDefault("codec", "none"),
            "enable.idempotence", plain ? "false" : "true", "acks", plain ? "1" : "all")) {
            Map<String, Future<RecordMetadata>> sent = new HashMap<>();
            List<String> values = new ArrayList<>();
            for (int i = from; i < from + count; i++) {
                ProducerRecord<String, String> record = new ProducerRecord<>(job.get("topic"), "k" + i % 7, "v" + i);
                record.headers().add("n", String.valueOf(i).getBytes(StandardCharsets.UTF_8));
                sent.put(record.value(), producer.send(record));
                values.add(record.value());
            }
            producer.flush();
            for (String value : values) {
                RecordMetadata at = sent.get(value).get();
                say("acked", at.partition(), at.offset(), value);
            }
        }
    }

    private static void write(Map<String, String> job, KafkaProducer<String, String> producer, String... values) throws Exception {
        for (String value : values) {
            try {
                RecordMetadata at = producer.send(new ProducerRecord<>(job.get("topic"), value)).get();
                say("acked", at.partition(), at.offset(), value);
            } catch (ExecutionException e) {
                throw e.getCause() instanceof Exception cause ? cause : e;
            }
        }
    }

    private static void transact(Map<String, String> job) throws Exception {
        try (KafkaProducer<String, String> producer = producer(job, "transactional.id", job.get("id"))) {
            producer.initTransactions();
            String[][] transactions = {{"c0", "c1", "c2"}, {"a0", "a1"}, {"c3", "c4"}};
            for (int i = 0; i < transactions.length; i++) {
                producer.beginTransaction();
                write(job, producer, transactions[i]);
                end(producer, i != 1);
            }
            copy(job, producer);
            producer.beginTransaction();
            write(job, producer, "f0");
            try (KafkaProducer<String, String> next = producer(job, "transactional.id", job.get("id"))) {
                next.initTransactions();
                next.beginTransaction();
                write(job, next, "c5");
                next.commitTransaction();
            }
            try {
                write(job, producer, "f1");
                producer.commitTransaction();
            } catch (KafkaException e) {
                say("fenced", e.getClass().getSimpleName());
                return;
            }
            throw new IllegalStateException("a producer whose id was taken over could commit");
        }
    }

    private static void end(KafkaProducer<String, String> producer, boolean commit) {
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    private static void copy(Map<String, String> job, KafkaProducer<String, String> producer) throws Exception {
        try (KafkaConsumer<String, String> consumer = consumer(job, "group.id", job.get("group"), "enable.auto.commit", "false",
            "auto.offset.reset", "earliest", "isolation.level", "read_committed", "max.poll.records", String.valueOf(COPIED),
            "heartbeat.interval.ms", "200")) {
            consumer.subscribe(List.of(job.get("input")));
            for (boolean commit : new boolean[] {true, false}) {
                producer.beginTransaction();
                for (int done = 0; done < COPIED; ) {
                    ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                    for (ConsumerRecord<String, String> r : records) {
                        write(job, producer, "p" + r.value());
                        done++;
                    }
                    if (!records.isEmpty()) {
                        TopicPartition p = new TopicPartition(job.get("input"), 0);
                        producer.sendOffsetsToTransaction(Map.of(p, new OffsetAndMetadata(consumer.position(p))), consumer.groupMetadata());
                    }
                }
                end(producer, commit);
            }
        }
    }

    /**
     * Writes count records of size bytes and reads them, and prints for each how many milliseconds it took and the
     * longest throttle time that the client's metrics know: "throttled produce|fetch MILLIS LONGEST".
     */
    private static void throttle(Map<String, String> job) throws Exception {
        int count = Integer.parseInt(job.get("count"));
        String value = "x".repeat(Integer.parseInt(job.get("size")));
        try (KafkaProducer<String, String> producer = producer(job, "batch.size", "1")) {
            long begun = System.nanoTime();
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(job.get("topic"), value)).get();
            }
            say("throttled", "produce", (System.nanoTime() - begun) / 1_000_000, longest(producer.metrics(), "produce-throttle-time-max"));
        }
        try (KafkaConsumer<String, String> consumer = consumer(job, "max.partition.fetch.bytes", job.get("size"), "fetch.max.bytes", job.get("size"))) {
            TopicPartition p = new TopicPartition(job.get("topic"), 0);
            consumer.assign(List.of(p));
            consumer.seekToBeginning(List.of(p));
            long begun = System.nanoTime();
            for (int done = 0; done < count; ) {
                done += consumer.poll(Duration.ofMillis(100)).count();
            }
            say("throttled", "fetch", (System.nanoTime() - begun) / 1_000_000, longest(consumer.metrics(), "fetch-throttle-time-max"));
        }
    }

    private static long longest(Map<MetricName, ? extends Metric> metrics, String name) {
        return metrics.entrySet().stream().filter(e -> e.getKey().name().equals(name))
            .mapToLong(e -> ((Double) e.getValue().metricValue()).longValue()).max().orElse(-1);
    }

    private static void members(Map<String, String> job) throws IOException {
        Map<String, AtomicBoolean> leave = new HashMap<>();
        List<Thread> threads = new ArrayList<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String name = line.split(" ")[1];
            if (line.startsWith("leave ")) {
                leave.get(name).set(true);
                continue;
            }
            AtomicBoolean leaving = new AtomicBoolean();
            leave.put(name, leaving);
            Thread member = new Thread(() -> member(job, name, leaving));
            threads.add(member);
            member.start();
        }
        leave.values().forEach(l -> l.set(true));
        for (Thread t : threads) {
            try {
                t.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static void member(Map<String, String> job, String name, AtomicBoolean leaving) {
        Properties settings = client(job, "client.id", job.get("name") + "-" + name, "group.id", job.get("group"),
            "group.protocol", job.get("protocol"), "enable.auto.commit", "false", "auto.offset.reset", "earliest");
        if (!"consumer".equals(job.get("protocol"))) {
            settings.setProperty("heartbeat.interval.ms", "200");
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(job.get("topic")));
            while (!leaving.get()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<String, String> r : records) {
                    say("record", name, r.partition(), r.offset(), r.value());
                }
                if (!records.isEmpty()) {
                    try {
                        consumer.commitSync();
                    } catch (CommitFailedException | RebalanceInProgressException e) {
                        System.err.println("not committed: " + e.getClass().getSimpleName()); // it is read again
                    }
                }
            }
        } catch (RuntimeException e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        say("left", name);
    }

    @SuppressWarnings("removal") // what takes the place of some of it isn't in 3.x
    private static void admin(Map<String, String> job) throws Exception {
        String topic = job.get("topic");
        String group = job.get("group");
        try (Admin admin = Admin.create(client(job))) {
            if (job.get("phase").equals("remove")) {
                admin.deleteConsumerGroups(List.of(group)).all().get();
                say("did", "delete-group");
                admin.deleteTopics(List.of(topic)).all().get();
                say("did", "delete-topic");
                return;
            }
            admin.createTopics(List.of(new NewTopic(topic, Optional.of(2), Optional.empty()).configs(Map.of("retention.ms", "3600000")))).all().get();
            say("did", "create-topic");
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            say("did", "create-partitions");
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            AlterConfigOp set = new AlterConfigOp(new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
            say("did", "alter-config");
            say("did", "describe-config", admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value());
            say("did", "describe-topic", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            TopicPartition part = new TopicPartition(job.get("records"), 0);
            admin.deleteRecords(Map.of(part, RecordsToDelete.beforeOffset(3))).all().get();
            say("did", "delete-records");
            say("did", "list-offsets", admin.listOffsets(Map.of(part, OffsetSpec.earliest())).all().get().get(part).offset());
            say("did", "list-groups", admin.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)));
            say("did", "describe-group", admin.describeConsumerGroups(List.of(group)).all().get().get(group).state());
            admin.alterConsumerGroupOffsets(group, Map.of(part, new OffsetAndMetadata(4))).all().get();
            say("did", "alter-offsets");
            say("did", "fetch-offsets", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(part).offset());
        }
    }
}
