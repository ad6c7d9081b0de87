package interop;

import static interop.Checks.fails;
import static interop.Checks.holds;
import static interop.Checks.same;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;

/** The producer, idempotent as it is by default. */
final class ProducerChecks {
    private final Broker broker;

    ProducerChecks(Broker broker) {
        this.broker = broker;
    }

    void runAll(Checks checks) {
        for (String codec : Broker.CODECS) {
            checks.run("producer with codec " + codec + ", headers and timestamps", () -> codec(codec));
        }
        checks.run("producer with acks=0 and acks=1", this::fewerAcks);
        checks.run("idempotent producer, many small batches in flight", this::manyBatches);
        checks.run("two producers share a partition", this::twoProducers);
        checks.run("log append time", this::logAppendTime);
        checks.run("topic made by its first use", this::automaticTopic);
        checks.run("records that a broker refuses", this::refused);
    }

    private void codec(String codec) throws Exception {
        String topic = "java-codec-" + codec;
        TopicPartition partition = broker.topic(topic, 1, Map.of()).get(0);
        long now = System.currentTimeMillis();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer =
                broker.producer(Map.of("compression.type", codec, "linger.ms", 5))) {
            for (int i = 0; i < 300; i++) {
                ProducerRecord<String, String> record = new ProducerRecord<>(topic, 0, now + i, key(i), value(i));
                record.headers().add("number", Integer.toString(i).getBytes(StandardCharsets.UTF_8));
                record.headers().add(new RecordHeader("empty", (byte[]) null));
                sent.add(producer.send(record));
            }
        }
        for (int i = 0; i < 300; i++) {
            same("offset", sent.get(i).get().offset(), (long) i);
            same("timestamp", sent.get(i).get().timestamp(), now + i);
        }
        List<ConsumerRecord<String, String>> read = broker.read(List.of(partition), Map.of("check.crcs", true));
        same("count", read.size(), 300);
        for (int i = 0; i < 300; i++) {
            ConsumerRecord<String, String> record = read.get(i);
            same("offset", record.offset(), (long) i);
            same("timestamp", record.timestamp(), now + i);
            same("key", String.valueOf(record.key()), String.valueOf(key(i)));
            same("value", String.valueOf(record.value()), String.valueOf(value(i)));
            same("header", new String(record.headers().lastHeader("number").value(), StandardCharsets.UTF_8), "" + i);
            holds("a header without a value stays one", record.headers().lastHeader("empty").value() == null);
        }
    }

    private static String key(int i) {
        return i % 7 == 0 ? null : "key" + i;
    }

    private static String value(int i) {
        return i % 11 == 0 ? null : "value".repeat(i % 50) + i;
    }

    private void fewerAcks() throws Exception {
        for (String acks : List.of("0", "1")) {
            String topic = "java-acks-" + acks;
            List<TopicPartition> partitions = broker.topic(topic, 1, Map.of());
            try (KafkaProducer<String, String> producer =
                    broker.producer(Map.of("acks", acks, "enable.idempotence", false))) {
                for (int i = 0; i < 100; i++) {
                    producer.send(new ProducerRecord<>(topic, "value" + i));
                }
                producer.flush();
                // With acks=0 nothing says when the broker has them; the next request of the connection comes after.
                producer.partitionsFor(topic);
            }
            long deadline = System.currentTimeMillis() + 10_000;
            while (broker.read(partitions, Map.of()).size() < 100) {
                holds("all records came", System.currentTimeMillis() < deadline);
            }
        }
    }

    private void manyBatches() throws Exception {
        String topic = "java-idempotent";
        List<TopicPartition> partitions = broker.topic(topic, 3, Map.of());
        try (KafkaProducer<String, String> producer =
                broker.producer(Map.of("batch.size", 200, "linger.ms", 0))) {
            for (int i = 0; i < 3000; i++) {
                producer.send(new ProducerRecord<>(topic, i % 3, null, "value" + i));
            }
        }
        for (TopicPartition partition : partitions) {
            List<ConsumerRecord<String, String>> read = broker.read(List.of(partition), Map.of());
            same("count", read.size(), 1000);
            for (int i = 0; i < 1000; i++) {
                same("value in order", read.get(i).value(), "value" + (3 * i + partition.partition()));
            }
        }
    }

    private void twoProducers() throws Exception {
        String topic = "java-two-producers";
        List<TopicPartition> partitions = broker.topic(topic, 1, Map.of());
        try (KafkaProducer<String, String> one = broker.producer(Map.of());
                KafkaProducer<String, String> other = broker.producer(Map.of())) {
            for (int i = 0; i < 50; i++) {
                same("offset", one.send(new ProducerRecord<>(topic, "one")).get().offset(), 2L * i);
                same("offset", other.send(new ProducerRecord<>(topic, "other")).get().offset(), 2L * i + 1);
            }
        }
        same("count", broker.read(partitions, Map.of()).size(), 100);
    }

    private void logAppendTime() throws Exception {
        String topic = "java-append-time";
        Map<String, String> configs = Map.of("message.timestamp.type", "LogAppendTime", "compression.type", "lz4");
        List<TopicPartition> partitions = broker.topic(topic, 1, configs);
        long before = System.currentTimeMillis();
        try (KafkaProducer<String, String> producer = broker.producer(Map.of("compression.type", "gzip"))) {
            RecordMetadata metadata = producer.send(new ProducerRecord<>(topic, 0, 1000L, "k", "v")).get();
            holds("the producer is told the broker's time", metadata.timestamp() >= before);
            ConsumerRecord<String, String> record = broker.read(partitions, Map.of()).get(0);
            same("timestamp", record.timestamp(), metadata.timestamp());
            same("kind of timestamp", record.timestampType(), TimestampType.LOG_APPEND_TIME);
        }
    }

    private void automaticTopic() throws Exception {
        try (KafkaProducer<String, String> producer = broker.producer(Map.of())) {
            same("offset", producer.send(new ProducerRecord<>("java-automatic", "v")).get().offset(), 0L);
            same("partitions", producer.partitionsFor("java-automatic").size(), 1);
        }
    }

    private void refused() throws Exception {
        broker.topic("java-small", 1, Map.of("max.message.bytes", "1000"));
        broker.topic("java-compacted", 1, Map.of("cleanup.policy", "compact"));
        broker.topic("java-timely", 1, Map.of("message.timestamp.before.max.ms", "1000"));
        try (KafkaProducer<String, String> producer = broker.producer(Map.of("max.block.ms", 3000))) {
            fails(RecordTooLargeException.class,
                    () -> producer.send(new ProducerRecord<>("java-small", "v".repeat(2000))).get());
            same("offset", producer.send(new ProducerRecord<>("java-small", "v")).get().offset(), 0L);
            fails(InvalidRecordException.class,
                    () -> producer.send(new ProducerRecord<>("java-compacted", "no key")).get());
            same("offset", producer.send(new ProducerRecord<>("java-compacted", "k", "v")).get().offset(), 0L);
            fails(InvalidTimestampException.class,
                    () -> producer.send(new ProducerRecord<>("java-timely", 0, 5L, "k", "v")).get());
            fails(TimeoutException.class, () -> producer.send(new ProducerRecord<>("java-small", 7, "k", "v")).get());
        }
    }
}
