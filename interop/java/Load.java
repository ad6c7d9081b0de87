package interop;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * A producer that waits for all replicas and a consumer in a group, while brokers die. Number n goes to partition n
 * modulo so many, so a partition must hold its numbers in steps of that: one that is missing, twice there or out of
 * order is seen. Prints `flowing` when both are at work, and what it counted after the file that says stop is there.
 */
final class Load {
    private static final int PARTITIONS = 6;
    private static final int PAUSE_MS = 2;
    private static final long PATIENCE_MS = 40_000;

    private final Broker broker;
    private final String topic;
    private final AtomicInteger acknowledged = new AtomicInteger();
    private final AtomicInteger refused = new AtomicInteger();
    private final AtomicInteger read = new AtomicInteger();
    private final AtomicInteger misplaced = new AtomicInteger();
    private final long[] next = new long[PARTITIONS];
    private volatile boolean isOver;
    private volatile long lastAckMs;
    private volatile long longestPauseMs;

    private Load(Broker broker, String topic) {
        this.broker = broker;
        this.topic = topic;
    }

    static void run(Broker broker, String topic, Path stop) throws Exception {
        Load load = new Load(broker, topic);
        Thread reader = new Thread(load::reads, "reader");
        reader.start();
        load.writes(stop);
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (load.read.get() < load.acknowledged.get() && System.currentTimeMillis() < deadline) {
            Thread.sleep(50);
        }
        load.isOver = true;
        reader.join();
        System.out.printf("acknowledged %d refused %d read %d misplaced %d pause_ms %d%n", load.acknowledged.get(),
                load.refused.get(), load.read.get(), load.misplaced.get(), load.longestPauseMs);
    }

    private void writes(Path stop) throws Exception {
        boolean isFlowing = false;
        try (KafkaProducer<String, String> producer = broker.producer(Map.of("acks", "all", "linger.ms", 0))) {
            for (long number = 0; !Files.exists(stop); number++) {
                producer.send(new ProducerRecord<>(topic, (int) (number % PARTITIONS), "k", Long.toString(number)),
                        (metadata, error) -> isAnswered(error));
                if (!isFlowing && read.get() > PARTITIONS) {
                    isFlowing = true;
                    System.out.println("flowing");
                }
                Thread.sleep(PAUSE_MS);
            }
        }
    }

    private void isAnswered(Exception error) {
        if (error != null) {
            System.err.println(error);
            refused.incrementAndGet();
            return;
        }
        long now = System.currentTimeMillis();
        if (acknowledged.getAndIncrement() > 0) {
            longestPauseMs = Math.max(longestPauseMs, now - lastAckMs);
        }
        lastAckMs = now;
    }

    private void reads() {
        Map<String, Object> settings = Map.of("group.id", topic, "auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer = broker.consumer(settings)) {
            consumer.subscribe(List.of(topic));
            while (!isOver) {
                consumer.poll(Broker.MOMENT).forEach(this::isRead);
            }
        }
    }

    private void isRead(ConsumerRecord<String, String> record) {
        long number = Long.parseLong(record.value());
        int partition = record.partition();
        if (number != next[partition] * PARTITIONS + partition) {
            misplaced.incrementAndGet();
        }
        next[partition]++;
        read.incrementAndGet();
    }
}
