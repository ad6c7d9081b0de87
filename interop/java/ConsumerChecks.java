package interop;

import static interop.Checks.fails;
import static interop.Checks.holds;
import static interop.Checks.same;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** The consumer with partitions that it is given by hand. */
final class ConsumerChecks {
    private static final long FIRST_MS = System.currentTimeMillis() - 1_000_000;
    private final Broker broker;

    ConsumerChecks(Broker broker) {
        this.broker = broker;
    }

    void runAll(Checks checks) {
        checks.run("consumer by assignment, many partitions, fetch sessions", this::sessions);
        checks.run("consumer seeks", this::seeks);
        checks.run("offsetsForTimes, beginningOffsets, endOffsets", this::lookups);
        checks.run("read_committed", this::readCommitted);
        checks.run("offsets out of range", this::outOfRange);
        checks.run("a poll that waits gets what comes", this::longPoll);
        checks.run("small fetches", this::smallFetches);
        checks.run("listTopics and partitionsFor", this::topics);
    }

    /** A topic with so many records a partition, a second apart, sent in several batches. */
    private List<TopicPartition> filled(String topic, int partitions, int count) throws Exception {
        List<TopicPartition> all = broker.topic(topic, partitions, Map.of());
        try (KafkaProducer<String, String> producer = broker.producer(Map.of("batch.size", 500))) {
            for (int i = 0; i < count; i++) {
                for (int index = 0; index < partitions; index++) {
                    producer.send(new ProducerRecord<>(topic, index, FIRST_MS + 1000L * i, "k" + i, "v" + i));
                }
            }
        }
        return all;
    }

    private void sessions() throws Exception {
        List<TopicPartition> partitions = filled("java-sessions", 20, 10);
        try (KafkaConsumer<String, String> consumer = broker.consumer(Map.of("max.poll.records", 7))) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            same("count", Broker.readToEnd(consumer, partitions).size(), 200);
            // Partitions leave the session and come back, others are added, and nothing is lost or read twice.
            List<TopicPartition> more = filled("java-sessions-more", 5, 10);
            consumer.pause(partitions.subList(0, 10));
            try (KafkaProducer<String, String> producer = broker.producer(Map.of())) {
                for (TopicPartition partition : partitions) {
                    producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), "k", "later"));
                }
            }
            same("count while paused", Broker.readToEnd(consumer, partitions.subList(10, 20)).size(), 10);
            consumer.resume(partitions.subList(0, 10));
            same("count when resumed", Broker.readToEnd(consumer, partitions).size(), 10);
            consumer.assign(more);
            consumer.seekToBeginning(more);
            same("count of others", Broker.readToEnd(consumer, more).size(), 50);
        }
    }

    private void seeks() throws Exception {
        TopicPartition partition = filled("java-seeks", 1, 100).get(0);
        try (KafkaConsumer<String, String> consumer = broker.consumer(Map.of("max.poll.records", 1))) {
            consumer.assign(List.of(partition));
            for (long offset : new long[] {50, 0, 99, 17, 18, 98}) {
                consumer.seek(partition, offset);
                ConsumerRecord<String, String> record = next(consumer);
                same("offset", record.offset(), offset);
                same("value", record.value(), "v" + offset);
            }
            consumer.seekToEnd(List.of(partition));
            same("position", consumer.position(partition), 100L);
            consumer.seekToBeginning(List.of(partition));
            same("position", consumer.position(partition), 0L);
        }
    }

    private static ConsumerRecord<String, String> next(KafkaConsumer<String, String> consumer) {
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(Broker.MOMENT);
            if (!records.isEmpty()) {
                return records.iterator().next();
            }
        }
    }

    private void lookups() throws Exception {
        TopicPartition partition = filled("java-lookups", 1, 100).get(0);
        try (KafkaConsumer<String, String> consumer = broker.consumer(Map.of())) {
            List<TopicPartition> partitions = List.of(partition);
            same("beginning", consumer.beginningOffsets(partitions).get(partition), 0L);
            same("end", consumer.endOffsets(partitions).get(partition), 100L);
            for (int i = 0; i < 100; i += 9) {
                for (long early : new long[] {0, 1, 999}) {
                    long time = FIRST_MS + 1000L * i - early;
                    OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, time)).get(partition);
                    same("offset at or after", found.offset(), (long) i);
                    same("timestamp found", found.timestamp(), FIRST_MS + 1000L * i);
                }
            }
            long late = FIRST_MS + 100_000L;
            holds("nothing is later", consumer.offsetsForTimes(Map.of(partition, late)).get(partition) == null);
        }
    }

    private void readCommitted() throws Exception {
        List<TopicPartition> partitions = filled("java-committed", 2, 50);
        Map<String, Object> settings = Map.of("isolation.level", "read_committed");
        same("count", broker.read(partitions, settings).size(), 100);
    }

    private void outOfRange() throws Exception {
        TopicPartition partition = filled("java-range", 1, 20).get(0);
        try (Admin admin = broker.admin()) {
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(12))).all().get();
        }
        try (KafkaConsumer<String, String> consumer = broker.consumer(Map.of("auto.offset.reset", "none"))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 5);
            fails(OffsetOutOfRangeException.class, () -> next(consumer));
        }
        try (KafkaConsumer<String, String> consumer = broker.consumer(Map.of("auto.offset.reset", "earliest"))) {
            consumer.assign(List.of(partition));
            for (long wrong : new long[] {5, 500}) {
                consumer.seek(partition, wrong);
                same("first offset left", next(consumer).offset(), 12L);
            }
        }
    }

    private void longPoll() throws Exception {
        TopicPartition partition = filled("java-waiting", 1, 1).get(0);
        Map<String, Object> patient = Map.of("fetch.max.wait.ms", 8000, "fetch.min.bytes", 1);
        try (KafkaConsumer<String, String> consumer = broker.consumer(patient);
                KafkaProducer<String, String> producer = broker.producer(Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            consumer.poll(Duration.ofMillis(300)); // the fetch is at the broker now, and waits there
            long started = System.currentTimeMillis();
            producer.send(new ProducerRecord<>(partition.topic(), "at last")).get();
            same("value", next(consumer).value(), "at last");
            holds("it came when it was sent", System.currentTimeMillis() - started < 4000);
        }
    }

    private void smallFetches() throws Exception {
        List<TopicPartition> partitions = filled("java-small-fetches", 3, 50);
        Map<String, Object> settings = Map.of("max.partition.fetch.bytes", 1, "fetch.max.bytes", 1);
        same("count", broker.read(partitions, settings).size(), 150);
    }

    private void topics() throws Exception {
        broker.topic("java-listed", 3, Map.of());
        try (KafkaConsumer<String, String> consumer = broker.consumer(Map.of())) {
            same("partitions", consumer.listTopics().get("java-listed").size(), 3);
            same("partitions", consumer.partitionsFor("java-listed").size(), 3);
            same("it has a leader", consumer.partitionsFor("java-listed").get(0).leader().id() >= 0, true);
        }
    }
}
