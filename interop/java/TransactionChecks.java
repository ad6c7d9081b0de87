package interop;

import static interop.Checks.fails;
import static interop.Checks.holds;
import static interop.Checks.same;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** The transactional producer, and readers of what it wrote. */
final class TransactionChecks {
    private static final int RECORDS = 100;
    private final Broker broker;

    TransactionChecks(Broker broker) {
        this.broker = broker;
    }

    void runAll(Checks checks) {
        checks.run("transactions: committed ones are read, aborted ones are not", this::commitsAndAborts);
        checks.run("transactions: an open one is not read, nor what follows it", this::openIsHidden);
        checks.run("transactions: an older producer of the same id is fenced", this::fences);
        checks.run("transactions: one that takes too long is aborted", this::timesOut);
        checks.run("transactions: a timeout longer than allowed is refused", this::tooLong);
        checks.run("transactions: admin lists, describes, aborts and fences", this::admin);
        for (String protocol : List.of("classic", "consumer")) {
            checks.run("transactions: a copier in a " + protocol + " group copies each record once", () -> copies(protocol));
        }
    }

    private KafkaProducer<String, String> transactional(String id, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of("transactional.id", id, "max.block.ms", 15_000));
        settings.putAll(more);
        return broker.producer(settings);
    }

    private List<String> committed(Collection<TopicPartition> partitions) {
        return broker.read(partitions, Map.of("isolation.level", "read_committed", "max.partition.fetch.bytes", 200))
                .stream().map(ConsumerRecord::value).toList();
    }

    private static void send(KafkaProducer<String, String> producer, List<TopicPartition> partitions, String value) {
        for (TopicPartition partition : partitions) {
            producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), "k", value));
        }
        producer.flush();
    }

    private void commitsAndAborts() throws Exception {
        List<TopicPartition> partitions = broker.topic("java-txn", 2, Map.of());
        List<String> expected = new ArrayList<>();
        try (KafkaProducer<String, String> producer = transactional("java-txn", Map.of())) {
            producer.initTransactions();
            for (int number = 0; number < 30; number++) {
                producer.beginTransaction();
                send(producer, partitions, "v" + number);
                if (number % 3 == 0) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    expected.add("v" + number);
                }
            }
        }
        for (TopicPartition partition : partitions) {
            same("committed", committed(List.of(partition)), expected);
            same("all", broker.read(List.of(partition), Map.of()).size(), 30);
        }
    }

    private void openIsHidden() throws Exception {
        List<TopicPartition> partitions = broker.topic("java-txn-open", 1, Map.of());
        try (KafkaProducer<String, String> producer = transactional("java-txn-open", Map.of());
                KafkaProducer<String, String> plain = broker.producer(Map.of())) {
            producer.initTransactions();
            send(plain, partitions, "before");
            producer.beginTransaction();
            send(producer, partitions, "within");
            send(plain, partitions, "after");
            same("while it is open", committed(partitions), List.of("before"));
            same("uncommitted", broker.read(partitions, Map.of()).size(), 3);
            producer.commitTransaction();
            same("when it is done", committed(partitions), List.of("before", "within", "after"));
        }
    }

    private void fences() throws Exception {
        List<TopicPartition> partitions = broker.topic("java-txn-fence", 1, Map.of());
        try (KafkaProducer<String, String> old = transactional("java-txn-fence", Map.of());
                KafkaProducer<String, String> young = transactional("java-txn-fence", Map.of())) {
            old.initTransactions();
            old.beginTransaction();
            send(old, partitions, "old");
            young.initTransactions();
            fails(ProducerFencedException.class, old::commitTransaction);
            young.beginTransaction();
            send(young, partitions, "young");
            young.commitTransaction();
            same("committed", committed(partitions), List.of("young"));
        }
    }

    private void timesOut() throws Exception {
        List<TopicPartition> partitions = broker.topic("java-txn-late", 1, Map.of());
        try (KafkaProducer<String, String> producer =
                        transactional("java-txn-late", Map.of("transaction.timeout.ms", 1000));
                KafkaProducer<String, String> plain = broker.producer(Map.of())) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, partitions, "late");
            send(plain, partitions, "after");
            List<String> read;
            do {
                read = committed(partitions);
            } while (read.isEmpty());
            same("committed", read, List.of("after"));
        }
    }

    private void tooLong() throws Exception {
        try (KafkaProducer<String, String> producer =
                transactional("java-txn-too-long", Map.of("transaction.timeout.ms", 900_001))) {
            fails(KafkaException.class, producer::initTransactions);
        }
    }

    private void admin() throws Exception {
        String id = "java-txn-admin";
        List<TopicPartition> partitions = broker.topic(id, 1, Map.of());
        TopicPartition partition = partitions.get(0);
        try (Admin admin = broker.admin(); KafkaProducer<String, String> producer = transactional(id, Map.of())) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, partitions, "open");
            TransactionListing listed = admin.listTransactions().all().get().stream()
                    .filter(each -> each.transactionalId().equals(id)).findFirst().orElseThrow();
            same("state", listed.state(), TransactionState.ONGOING);
            TransactionDescription described = admin.describeTransactions(Set.of(id)).description(id).get();
            same("partitions", described.topicPartitions(), Set.of(partition));
            same("producer", described.producerId(), listed.producerId());
            ProducerState state = admin.describeProducers(List.of(partition)).partitionResult(partition).get()
                    .activeProducers().get(0);
            same("its first offset", state.currentTransactionStartOffset().orElse(-1), 0L);
            admin.abortTransaction(new AbortTransactionSpec(partition, state.producerId(), (short) state.producerEpoch(),
                    state.coordinatorEpoch().orElse(0))).all().get();
            same("committed", committed(partitions), List.of());
            admin.fenceProducers(List.of(id)).all().get();
            fails(InvalidProducerEpochException.class, () -> {
                send(producer, partitions, "fenced");
                producer.commitTransaction();
            });
        }
    }

    /** Reads, writes what it read and commits its offsets in one transaction; every third one it aborts and does again. */
    private void copies(String protocol) throws Exception {
        String name = "java-copier-" + protocol;
        List<TopicPartition> source = broker.topic(name + "-in", 2, Map.of());
        List<TopicPartition> target = broker.topic(name + "-out", 2, Map.of());
        try (KafkaProducer<String, String> producer = broker.producer(Map.of())) {
            for (int i = 0; i < RECORDS; i++) {
                producer.send(new ProducerRecord<>(name + "-in", i % 2, "k", "v" + i));
            }
        }
        Map<String, Object> settings = Map.of("group.id", name, "group.protocol", protocol, "auto.offset.reset", "earliest",
                "enable.auto.commit", false, "isolation.level", "read_committed", "max.poll.records", 10);
        try (KafkaConsumer<String, String> consumer = broker.consumer(settings);
                KafkaProducer<String, String> producer = transactional(name, Map.of())) {
            producer.initTransactions();
            consumer.subscribe(List.of(name + "-in"));
            int copied = 0;
            for (int round = 0; copied < RECORDS; round++) {
                ConsumerRecords<String, String> records = consumer.poll(Broker.MOMENT);
                if (records.isEmpty()) {
                    continue;
                }
                boolean isKept = round % 3 != 0;
                copy(consumer, producer, records, name + "-out", isKept);
                copied += isKept ? records.count() : 0;
            }
            Map<TopicPartition, OffsetAndMetadata> ends = consumer.committed(Set.copyOf(source));
            same("committed offset", ends.get(source.get(0)).offset(), RECORDS / 2L);
            same("committed offset", ends.get(source.get(1)).offset(), RECORDS / 2L);
        }
        List<String> read = committed(target);
        same("count", read.size(), RECORDS);
        same("different", Set.copyOf(read).size(), RECORDS);
        holds("some were aborted", broker.read(target, Map.of()).size() > RECORDS);
    }

    private static void copy(KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer,
            ConsumerRecords<String, String> records, String to, boolean isKept) {
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(to, record.partition(), record.key(), record.value()));
        }
        producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
        if (isKept) {
            producer.commitTransaction();
            return;
        }
        producer.flush();
        producer.abortTransaction();
        records.partitions().forEach(each -> consumer.seek(each, records.records(each).get(0).offset()));
    }
}
