package interop;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Fills topics of two partitions, and says what is in them, so that two brokers can be compared. */
final class Contents {
    private static final int RECORDS_A_CODEC = 1000;

    /** A new topic with every codec, keys and values that are missing, headers; several segments' worth. */
    static void fill(Broker broker, String topic, String segmentBytes, String segmentMs) throws Exception {
        broker.topic(topic, 2, Map.of(
                "segment.bytes", segmentBytes, "segment.ms", segmentMs, "index.interval.bytes", "1000"));
        for (String codec : Broker.CODECS) {
            Map<String, Object> settings = Map.of("compression.type", codec, "batch.size", 4000, "linger.ms", 2);
            try (KafkaProducer<String, String> producer = broker.producer(settings)) {
                for (int i = 0; i < RECORDS_A_CODEC; i++) {
                    String key = i % 5 == 0 ? null : "key" + i;
                    String value = i % 9 == 0 ? null : (codec + i + "-").repeat(i % 60);
                    ProducerRecord<String, String> record = new ProducerRecord<>(topic, i % 2, key, value);
                    if (i % 3 == 0) {
                        record.headers().add("codec", codec.getBytes(StandardCharsets.UTF_8));
                    }
                    producer.send(record);
                }
            }
        }
    }

    /** Transactions of which every third is aborted. */
    static void fillTransactions(Broker broker, String topic) {
        try (KafkaProducer<String, String> producer = broker.producer(Map.of("transactional.id", "interop"))) {
            producer.initTransactions();
            for (int number = 0; number < 9; number++) {
                producer.beginTransaction();
                for (int i = 0; i < 10; i++) {
                    producer.send(new ProducerRecord<>(topic, i % 2, "transaction", number + "-" + i));
                }
                producer.flush();
                if (number % 3 == 0) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
    }

    /** A new topic with a transaction that is committed, one that is aborted and one that stays open; prints where. */
    static void leaveOpen(Broker broker, String topic) throws Exception {
        broker.topic(topic, 1, Map.of());
        Map<String, Object> settings = Map.of("transactional.id", topic, "transaction.timeout.ms", 300_000);
        KafkaProducer<String, String> producer = broker.producer(settings);
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, "k", "committed"));
        producer.commitTransaction();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, "k", "aborted")).get(); // else it would not be sent at all
        producer.abortTransaction();
        producer.beginTransaction();
        System.out.println(producer.send(new ProducerRecord<>(topic, 0, "k", "open")).get().offset());
        // Not closed: that would abort it.
    }

    /** A line for each partition and isolation level: where it begins and ends, how many records, a hash of them. */
    static void digest(Broker broker, String topic) throws Exception {
        for (int index = 0; index < 2; index++) {
            List<TopicPartition> partition = List.of(new TopicPartition(topic, index));
            for (String isolation : List.of("read_uncommitted", "read_committed")) {
                List<ConsumerRecord<String, String>> records =
                        broker.read(partition, Map.of("isolation.level", isolation));
                MessageDigest hash = MessageDigest.getInstance("SHA-256");
                for (ConsumerRecord<String, String> record : records) {
                    hash.update(text(record).getBytes(StandardCharsets.UTF_8));
                }
                System.out.printf("%s %s: %d records, offsets %d to %d, %s%n", partition.get(0), isolation,
                        records.size(), records.get(0).offset(), records.get(records.size() - 1).offset(),
                        HexFormat.of().formatHex(hash.digest()));
            }
        }
    }

    private static String text(ConsumerRecord<String, String> record) {
        return record.offset() + " " + record.timestamp() + " " + record.timestampType() + " " + record.key() + " "
                + record.value() + " " + record.headers() + " " + record.leaderEpoch() + "\n";
    }
}
