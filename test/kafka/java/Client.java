import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own clients under the control of a Go test. One JVM runs several jobs, a thread each, named on the command
 * line: {@code produce name=p topic=t count=10 set.acks=all -- consume name=c topic=t assign=0:40:12}. A setting that
 * starts with {@code set.} goes to the client as it is; everything else that a client can be told has its default.
 *
 * <p>Each event is one line on standard output, written by one system call:
 * {@code @<milliseconds> <job> <event> <fields...>}. The jobs end when they have done their count, or at SIGTERM.
 */
public final class Client {
    private static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);
    private static final AtomicBoolean STOPPING = new AtomicBoolean();
    private static final AtomicBoolean BROKEN = new AtomicBoolean();

    private Client() {
    }

    /** One part of the command line. */
    private record Job(String kind, Map<String, String> settings) {
        static Job parse(List<String> args) {
            Map<String, String> settings = new LinkedHashMap<>();
            for (String arg : args.subList(1, args.size())) {
                int at = arg.indexOf('=');
                settings.put(arg.substring(0, at), arg.substring(at + 1));
            }
            return new Job(args.get(0), settings);
        }

        String text(String key, String or) {
            return settings.getOrDefault(key, or);
        }

        long number(String key, long or) {
            return settings.containsKey(key) ? Long.parseLong(settings.get(key)) : or;
        }

        Properties client() {
            Properties p = new Properties();
            p.setProperty("client.id", text("name", kind));
            p.setProperty("bootstrap.servers", text("bootstrap", ""));
            settings.forEach((key, value) -> {
                if (key.startsWith("set.")) {
                    p.setProperty(key.substring("set.".length()), value);
                }
            });
            return p;
        }

        void event(String event, Object... fields) {
            StringBuilder line = new StringBuilder("@" + System.currentTimeMillis() + " " + text("name", kind) + " " + event);
            for (Object field : fields) {
                line.append(' ').append(String.valueOf(field).replace('\n', ' '));
            }
            try {
                OUT.write(line.append('\n').toString().getBytes(StandardCharsets.UTF_8));
            } catch (IOException e) {
                Runtime.getRuntime().halt(2); // nobody can hear us
            }
        }

        void run() {
            try {
                switch (kind) {
                    case "produce" -> produce(this);
                    case "transact" -> transact(this);
                    case "consume" -> consume(this);
                    case "group" -> group(this);
                    default -> throw new IllegalArgumentException("unknown kind of job: " + kind);
                }
            } catch (Exception e) {
                BROKEN.set(true);
                event("error", e);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        List<Thread> threads = new ArrayList<>();
        List<String> part = new ArrayList<>();
        for (String arg : args) {
            if (!arg.equals("--")) {
                part.add(arg);
                continue;
            }
            threads.add(new Thread(Job.parse(part)::run));
            part = new ArrayList<>();
        }
        threads.add(new Thread(Job.parse(part)::run));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            STOPPING.set(true);
            threads.forEach(Client::join);
        }));
        threads.forEach(Thread::start);
        threads.forEach(Client::join);
        System.exit(BROKEN.get() ? 1 : 0);
    }

    private static void join(Thread t) {
        try {
            t.join();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static KafkaProducer<String, String> producer(Job job) throws Exception {
        KafkaProducer<String, String> producer = new KafkaProducer<>(job.client(), new StringSerializer(), new StringSerializer());
        long id = job.number("pid", -1);
        if (id >= 0) {
            becomeProducer(producer, id);
        }
        return producer;
    }

    /**
     * Gives a new idempotent producer an id of our choice, in place of the one that it fetches by itself at first.
     * The library can only be told so behind its back.
     */
    private static void becomeProducer(KafkaProducer<String, String> producer, long id) throws Exception {
        Field manager = KafkaProducer.class.getDeclaredField("transactionManager");
        manager.setAccessible(true);
        Field field = manager.getType().getDeclaredField("producerIdAndEpoch");
        field.setAccessible(true);
        Constructor<?> make = field.getType().getDeclaredConstructor(long.class, short.class);
        Object none = make.newInstance(-1L, (short) -1);
        while (field.get(manager.get(producer)).equals(none)) {
            Thread.sleep(5);
        }
        field.set(manager.get(producer), make.newInstance(id, (short) 0));
    }

    private static ProducerRecord<String, String> record(Job job, String value) {
        long partition = job.number("partition", -1);
        return new ProducerRecord<>(job.text("topic", ""), partition < 0 ? null : (int) partition, null, value);
    }

    /**
     * Writes prefix-0, prefix-1 and so on, rate of them per second. With await=true the first record is sent again
     * for as long as a policy refuses it, which is what a topic that isn't writable yet looks like. With pid=5 the
     * producer is number 5 of its cluster.
     */
    private static void produce(Job job) throws Exception {
        String prefix = job.text("prefix", job.text("name", "value")) + "-";
        long from = job.number("from", 0);
        long count = job.number("count", Long.MAX_VALUE - from);
        long rate = job.number("rate", 0);
        AtomicLong failed = new AtomicLong();
        long done = 0;
        try (KafkaProducer<String, String> producer = producer(job)) {
            if (job.text("await", "false").equals("true")) {
                RecordMetadata at = untilAccepted(job, producer, record(job, prefix + from));
                if (at != null) {
                    job.event("acked", prefix + from, at.partition(), at.offset());
                }
                done++;
            }
            long begun = System.nanoTime();
            for (; done < count && !STOPPING.get(); done++) {
                String value = prefix + (from + done);
                producer.send(record(job, value), (at, e) -> {
                    if (e == null) {
                        job.event("acked", value, at.partition(), at.offset());
                    } else {
                        failed.incrementAndGet();
                        job.event("failed", value, e);
                    }
                });
                if (rate > 0) {
                    long due = begun + (done + 1) * 1_000_000_000L / rate;
                    Thread.sleep(Math.max(0, (due - System.nanoTime()) / 1_000_000));
                }
            }
            producer.flush();
        }
        job.event("done", done, failed.get());
    }

    private static RecordMetadata untilAccepted(Job job, KafkaProducer<String, String> producer,
                                                ProducerRecord<String, String> record) throws Exception {
        while (!STOPPING.get()) {
            try {
                return producer.send(record).get();
            } catch (ExecutionException e) {
                if (!(e.getCause() instanceof PolicyViolationException)) {
                    throw e;
                }
                job.event("refused", e.getCause().getMessage());
                Thread.sleep(20);
            }
        }
        return null;
    }

    /** Runs the transactions of steps=commit:5,abort:5,open:5; an open one stays so until the process is killed. */
    private static void transact(Job job) throws Exception {
        try (KafkaProducer<String, String> producer = producer(job)) {
            producer.initTransactions();
            String[] steps = job.text("steps", "").split(",");
            for (int i = 0; i < steps.length; i++) {
                String end = steps[i].split(":")[0];
                int count = Integer.parseInt(steps[i].split(":")[1]);
                producer.beginTransaction();
                for (int n = 0; n < count; n++) {
                    String value = end + "-" + i + "-" + n;
                    RecordMetadata at = producer.send(record(job, value)).get();
                    job.event("acked", value, at.partition(), at.offset());
                }
                switch (end) {
                    case "commit" -> producer.commitTransaction();
                    case "abort" -> producer.abortTransaction();
                    default -> {
                        job.event("open", i);
                        Thread.sleep(Long.MAX_VALUE); // closing would abort it
                    }
                }
                job.event(end, i);
            }
        }
        job.event("done", 0, 0);
    }

    /** Reads on from assign=partition:offset[:epoch],... without a group; count records, or for millis. */
    private static void consume(Job job) {
        String topic = job.text("topic", "");
        long count = job.number("count", Long.MAX_VALUE);
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(job.client(), new StringDeserializer(), new StringDeserializer())) {
            Map<TopicPartition, OffsetAndMetadata> from = new LinkedHashMap<>();
            for (String item : job.text("assign", "0:0").split(",")) {
                String[] at = item.split(":");
                Optional<Integer> epoch = at.length > 2 ? Optional.of(Integer.valueOf(at[2])) : Optional.empty();
                from.put(new TopicPartition(topic, Integer.parseInt(at[0])), new OffsetAndMetadata(Long.parseLong(at[1]), epoch, ""));
            }
            consumer.assign(from.keySet());
            // A committed position is looked up when the consumer knows the topic already. Only then is its epoch
            // compared with that of the metadata.
            consumer.seekToBeginning(from.keySet());
            from.keySet().forEach(consumer::position);
            from.forEach(consumer::seek);
            job.event("assigned", from.size());
            Map<TopicPartition, Long> positions = new HashMap<>();
            long until = System.nanoTime() + job.number("millis", Long.MAX_VALUE / 4_000_000) * 1_000_000;
            for (long done = 0; done < count && System.nanoTime() < until && !STOPPING.get(); ) {
                for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(100))) {
                    job.event("record", r.value().replace(' ', '_'), r.partition(), r.offset(), r.leaderEpoch().orElse(-1));
                    done++;
                }
                from.keySet().forEach(p -> position(job, consumer, p, positions));
            }
        }
        job.event("done", 0, 0);
    }

    /**
     * Reads topics as a member of a group, by name (topics=a,b) or by a regular expression for the coordinator
     * (regex=...), and commits after each poll. At SIGTERM it leaves.
     */
    private static void group(Job job) {
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(job.client(), new StringDeserializer(), new StringDeserializer())) {
            ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    changed("given", partitions);
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    changed("revoked", partitions);
                }

                @Override
                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    changed("lost", partitions);
                }

                private void changed(String event, Collection<TopicPartition> partitions) {
                    job.event(event, partitions.stream().map(TopicPartition::toString).sorted().toArray());
                    job.event("has", consumer.assignment().stream().map(TopicPartition::toString).sorted().toArray());
                }
            };
            if (job.settings().containsKey("regex")) {
                consumer.subscribe(new SubscriptionPattern(job.text("regex", "")), listener);
            } else {
                consumer.subscribe(List.of(job.text("topics", job.text("topic", "")).split(",")), listener);
            }
            long count = job.number("count", Long.MAX_VALUE);
            for (long done = 0; done < count && !STOPPING.get(); ) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<String, String> r : records) {
                    job.event("record", r.value().replace(' ', '_'), r.topic() + "-" + r.partition(), r.offset());
                    done++;
                }
                if (records.isEmpty()) {
                    continue;
                }
                try {
                    consumer.commitSync();
                } catch (CommitFailedException | RetriableException e) {
                    job.event("uncommitted", e.getClass().getSimpleName());
                }
            }
        }
        job.event("done", 0, 0);
    }

    private static void position(Job job, KafkaConsumer<String, String> consumer, TopicPartition p, Map<TopicPartition, Long> known) {
        try {
            long now = consumer.position(p, Duration.ofMillis(1));
            if (!Long.valueOf(now).equals(known.put(p, now))) {
                job.event("position", p.partition(), now);
            }
        } catch (TimeoutException e) {
            // Not known at this moment: while it is checked against the leader's epochs.
        }
    }
}
