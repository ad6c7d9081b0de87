package interop;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Clients of the broker under test. Settings are those of the client, but for what is given. */
record Broker(String address) {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final Duration MOMENT = Duration.ofMillis(500);

    KafkaProducer<String, String> producer(Map<String, Object> settings) {
        return new KafkaProducer<>(with(settings), new StringSerializer(), new StringSerializer());
    }

    KafkaConsumer<String, String> consumer(Map<String, Object> settings) {
        return new KafkaConsumer<>(with(settings), new StringDeserializer(), new StringDeserializer());
    }

    Admin admin() {
        return Admin.create(with(Map.of()));
    }

    private Map<String, Object> with(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", address, "request.timeout.ms", 10_000,
                "default.api.timeout.ms", 15_000));
        all.putAll(settings);
        return all;
    }

    /** A new topic, and its partitions. */
    List<TopicPartition> topic(String name, int partitions, Map<String, String> configs) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(name, Optional.of(partitions), Optional.empty()).configs(configs))).all().get();
        }
        List<TopicPartition> all = new ArrayList<>();
        for (int index = 0; index < partitions; index++) {
            all.add(new TopicPartition(name, index));
        }
        return all;
    }

    /** All records of some partitions, up to where they end now. */
    List<ConsumerRecord<String, String>> read(Collection<TopicPartition> partitions, Map<String, Object> settings) {
        try (KafkaConsumer<String, String> consumer = consumer(settings)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            return readToEnd(consumer, partitions);
        }
    }

    static List<ConsumerRecord<String, String>> readToEnd(
            KafkaConsumer<String, String> consumer, Collection<TopicPartition> partitions) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
        while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
            consumer.poll(MOMENT).forEach(records::add);
        }
        return records;
    }
}
