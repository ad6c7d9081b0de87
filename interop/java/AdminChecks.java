package interop;

import static interop.Checks.fails;
import static interop.Checks.holds;
import static interop.Checks.same;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** The admin client. */
final class AdminChecks {
    private final Broker broker;
    private final Admin admin;

    AdminChecks(Broker broker) {
        this.broker = broker;
        this.admin = broker.admin();
    }

    void runAll(Checks checks) {
        checks.run("admin creates, describes and deletes topics", this::topics);
        checks.run("admin is refused wrong topics", this::wrongTopics);
        checks.run("admin creates partitions", this::partitions);
        checks.run("admin describes and alters configs", this::configs);
        checks.run("admin deletes records", this::deletesRecords);
        checks.run("admin lists offsets", this::offsets);
        checks.run("admin describes producers", this::producers);
        checks.run("admin describes the cluster and its features", this::cluster);
        checks.run("admin describes log dirs", this::logDirs);
        admin.close();
    }

    private void topics() throws Exception {
        NewTopic asked = new NewTopic("admin-made", 3, (short) 1).configs(Map.of("retention.ms", "5000"));
        admin.createTopics(List.of(asked), new CreateTopicsOptions().validateOnly(true)).all().get();
        holds("validating makes nothing", !admin.listTopics().names().get().contains("admin-made"));
        CreateTopicsResult made = admin.createTopics(List.of(asked));
        same("partitions", made.numPartitions("admin-made").get(), 3);
        same("retention.ms", made.config("admin-made").get().get("retention.ms").value(), "5000");
        Uuid id = made.topicId("admin-made").get();
        TopicDescription topic = admin.describeTopics(List.of("admin-made")).allTopicNames().get().get("admin-made");
        same("id", topic.topicId(), id);
        same("in sync", topic.partitions().get(2).isr().size(), 1);
        TopicCollection byId = TopicCollection.ofTopicIds(List.of(id));
        same("name", admin.describeTopics(byId).allTopicIds().get().get(id).name(), "admin-made");
        admin.deleteTopics(byId).all().get();
        holds("it is gone", !admin.listTopics().names().get().contains("admin-made"));
        fails(UnknownTopicIdException.class, () -> admin.describeTopics(byId).allTopicIds().get());
        fails(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(List.of("admin-made")).all().get());
    }

    private void create(NewTopic topic) throws Exception {
        admin.createTopics(List.of(topic)).all().get();
    }

    private void wrongTopics() throws Exception {
        create(new NewTopic("admin-there", 1, (short) 1));
        fails(TopicExistsException.class, () -> create(new NewTopic("admin-there", 1, (short) 1)));
        fails(InvalidTopicException.class, () -> create(new NewTopic("no/name", 1, (short) 1)));
        fails(InvalidTopicException.class, () -> create(new NewTopic("a".repeat(250), 1, (short) 1)));
        fails(InvalidPartitionsException.class, () -> create(new NewTopic("admin-wrong", 0, (short) 1)));
        fails(InvalidReplicationFactorException.class, () -> create(new NewTopic("admin-wrong", 1, (short) 9)));
        Map<String, String> nonsense = Map.of("nonsense", "1");
        fails(InvalidConfigurationException.class,
                () -> create(new NewTopic("admin-wrong", 1, (short) 1).configs(nonsense)));
        holds("none was made", !admin.listTopics().names().get().contains("admin-wrong"));
    }

    private void partitions() throws Exception {
        create(new NewTopic("admin-grows", 1, (short) 1));
        admin.createPartitions(Map.of("admin-grows", NewPartitions.increaseTo(4))).all().get();
        TopicDescription topic = admin.describeTopics(List.of("admin-grows")).allTopicNames().get().get("admin-grows");
        same("partitions", topic.partitions().size(), 4);
        fails(InvalidPartitionsException.class,
                () -> admin.createPartitions(Map.of("admin-grows", NewPartitions.increaseTo(2))).all().get());
        try (KafkaProducer<String, String> producer = broker.producer(Map.of())) {
            same("offset", producer.send(new ProducerRecord<>("admin-grows", 3, "k", "v")).get().offset(), 0L);
        }
    }

    private void configs() throws Exception {
        create(new NewTopic("admin-configs", 1, (short) 1));
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "admin-configs");
        alter(topic, "retention.ms", "7777", OpType.SET);
        alter(topic, "cleanup.policy", "compact", OpType.APPEND);
        ConfigEntry retention = describe(topic).get("retention.ms");
        same("value", retention.value(), "7777");
        same("source", retention.source(), ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
        same("type", retention.type(), ConfigEntry.ConfigType.LONG);
        same("synonyms of a value without a broker's default", retention.synonyms().size(), 1);
        same("synonyms of a value with one", describe(topic).get("cleanup.policy").synonyms().size(), 2);
        holds("it is documented", !retention.documentation().isEmpty());
        same("list", Set.of(describe(topic).get("cleanup.policy").value().split(",")), Set.of("delete", "compact"));
        alter(topic, "cleanup.policy", "compact", OpType.SUBTRACT);
        alter(topic, "retention.ms", null, OpType.DELETE);
        same("default", describe(topic).get("retention.ms").value(), "604800000");
        same("default list", describe(topic).get("cleanup.policy").value(), "delete");
        fails(InvalidConfigurationException.class, () -> alter(topic, "retention.ms", "soon", OpType.SET));
        ConfigResource node = new ConfigResource(ConfigResource.Type.BROKER, "0");
        same("read only", describe(node).get("broker.id").isReadOnly(), true);
        alter(node, "log.cleaner.threads", "2", OpType.SET);
        same("broker's", describe(node).get("log.cleaner.threads").value(), "2");
        alter(node, "log.cleaner.threads", null, OpType.DELETE);
    }

    private void alter(ConfigResource resource, String name, String value, OpType how) throws Exception {
        AlterConfigOp operation = new AlterConfigOp(new ConfigEntry(name, value), how);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(operation))).all().get();
    }

    private Config describe(ConfigResource resource) throws Exception {
        DescribeConfigsOptions all = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(List.of(resource), all).all().get().get(resource);
    }

    /** A topic of one partition; record i has the timestamp of its place in the list. */
    private TopicPartition filled(String topic, long... timestamps) throws Exception {
        create(new NewTopic(topic, 1, (short) 1));
        try (KafkaProducer<String, String> producer = broker.producer(Map.of())) {
            for (long timestamp : timestamps) {
                producer.send(new ProducerRecord<>(topic, 0, timestamp, "k", "v")).get();
            }
        }
        return new TopicPartition(topic, 0);
    }

    private void deletesRecords() throws Exception {
        long now = System.currentTimeMillis();
        TopicPartition partition = filled("admin-deletes", now, now, now, now, now);
        same("low watermark", deleteBefore(partition, 3), 3L);
        same("it only rises", deleteBefore(partition, 1), 3L);
        fails(OffsetOutOfRangeException.class, () -> deleteBefore(partition, 6));
        same("all", deleteBefore(partition, -1), 5L);
        same("nothing is left", broker.read(List.of(partition), Map.of()).size(), 0);
    }

    private long deleteBefore(TopicPartition partition, long offset) throws Exception {
        RecordsToDelete wanted = RecordsToDelete.beforeOffset(offset);
        return admin.deleteRecords(Map.of(partition, wanted)).lowWatermarks().get(partition).get().lowWatermark();
    }

    private void offsets() throws Exception {
        long now = System.currentTimeMillis();
        TopicPartition partition = filled("admin-offsets", now, now + 500, now + 100);
        same("earliest", offset(partition, OffsetSpec.earliest()), 0L);
        same("latest", offset(partition, OffsetSpec.latest()), 3L);
        same("largest timestamp", offset(partition, OffsetSpec.maxTimestamp()), 1L);
        same("by time", offset(partition, OffsetSpec.forTimestamp(now + 1)), 1L);
        same("by a late time", offset(partition, OffsetSpec.forTimestamp(now + 501)), -1L);
        same("earliest local", offset(partition, OffsetSpec.earliestLocal()), 0L);
        same("nothing is tiered", offset(partition, OffsetSpec.latestTiered()), -1L);
    }

    private long offset(TopicPartition partition, OffsetSpec which) throws Exception {
        return admin.listOffsets(Map.of(partition, which)).partitionResult(partition).get().offset();
    }

    private void producers() throws Exception {
        TopicPartition partition = filled("admin-producers", System.currentTimeMillis(), System.currentTimeMillis());
        List<ProducerState> active =
                admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
        same("producers", active.size(), 1);
        same("last sequence", active.get(0).lastSequence(), 1);
        holds("no transaction", active.get(0).currentTransactionStartOffset().isEmpty());
    }

    private void cluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        holds("its nodes are told", Set.of(1, 3).contains(cluster.nodes().get().size()));
        holds("there is a controller", cluster.controller().get().id() >= 0);
        same("length of the cluster id", cluster.clusterId().get().length(), 22);
        holds("features are told", admin.describeFeatures().featureMetadata().get() != null);
    }

    private void logDirs() throws Exception {
        TopicPartition partition = filled("admin-dirs", System.currentTimeMillis());
        TopicDescription topic = admin.describeTopics(List.of("admin-dirs")).allTopicNames().get().get("admin-dirs");
        int host = topic.partitions().get(0).leader().id();
        Map<String, LogDirDescription> dirs = admin.describeLogDirs(List.of(host)).allDescriptions().get().get(host);
        same("dirs", dirs.size(), 1);
        LogDirDescription dir = dirs.values().iterator().next();
        holds("it has a size", dir.replicaInfos().get(partition).size() > 0);
        holds("the disk is told", dir.totalBytes().orElse(0) > 0 && dir.usableBytes().orElse(0) > 0);
    }
}
