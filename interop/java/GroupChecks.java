package interop;

import static interop.Checks.fails;
import static interop.Checks.holds;
import static interop.Checks.same;

import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;

/** Consumers that subscribe, in classic groups and in those of the new protocol (KIP-848). */
final class GroupChecks {
    private static final int PARTITIONS = 6;
    private final Broker broker;

    GroupChecks(Broker broker) {
        this.broker = broker;
    }

    void runAll(Checks checks) {
        for (String protocol : List.of("classic", "consumer")) {
            String name = protocol + " group: ";
            checks.run(name + "two members share, and each is given the other's part", () -> shares(protocol));
            checks.run(name + "goes on where it committed", () -> goesOn(protocol));
            checks.run(name + "a static member comes back", () -> comesBack(protocol));
            checks.run(name + "subscribes by pattern", () -> byPattern(protocol));
        }
        checks.run("classic group: cooperative-sticky", this::cooperative);
        checks.run("a group moves from the classic to the new protocol and back", this::migrates);
        checks.run("admin alters, lists and deletes the offsets of groups", this::offsetsByAdmin);
    }

    private KafkaConsumer<String, String> member(String protocol, String group, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of("group.protocol", protocol, "group.id", group,
                "auto.offset.reset", "earliest", "enable.auto.commit", false));
        if (protocol.equals("classic")) {
            settings.put("heartbeat.interval.ms", 200);
        }
        settings.putAll(more);
        return broker.consumer(settings);
    }

    private List<TopicPartition> filled(String topic, int partitions) throws Exception {
        List<TopicPartition> all = broker.topic(topic, partitions, Map.of());
        fill(all, 0, 10);
        return all;
    }

    private void fill(List<TopicPartition> partitions, int from, int to) {
        try (KafkaProducer<String, String> producer = broker.producer(Map.of())) {
            for (TopicPartition partition : partitions) {
                for (int i = from; i < to; i++) {
                    producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), "k", "v" + i));
                }
            }
        }
    }

    /** Polls all in turn until so many records came; each must come once. */
    private static void readsOnce(int count, List<KafkaConsumer<String, String>> members) {
        Set<String> read = new HashSet<>();
        while (read.size() < count) {
            for (KafkaConsumer<String, String> member : members) {
                for (ConsumerRecord<String, String> record : member.poll(Broker.MOMENT.dividedBy(5))) {
                    String place = record.topic() + "-" + record.partition() + "@" + record.offset();
                    holds(place + " came once", read.add(place));
                }
            }
        }
    }

    /** Polls all in turn until each has so many partitions. What they read meanwhile is dropped. */
    private static void settle(int each, List<KafkaConsumer<String, String>> members) {
        while (!members.stream().allMatch(member -> member.assignment().size() == each)) {
            members.forEach(member -> member.poll(Broker.MOMENT.dividedBy(10)));
        }
    }

    private ConsumerGroupDescription describe(String group) throws Exception {
        try (Admin admin = broker.admin()) {
            return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        }
    }

    private void shares(String protocol) throws Exception {
        String group = "java-shares-" + protocol;
        List<TopicPartition> partitions = filled(group, PARTITIONS);
        try (KafkaConsumer<String, String> one = member(protocol, group, Map.of())) {
            one.subscribe(List.of(group));
            readsOnce(PARTITIONS * 10, List.of(one));
            one.commitSync();
            try (KafkaConsumer<String, String> two = member(protocol, group, Map.of())) {
                two.subscribe(List.of(group));
                settle(PARTITIONS / 2, List.of(one, two));
                Set<TopicPartition> together = new HashSet<>(one.assignment());
                together.addAll(two.assignment());
                same("all are read", together, Set.copyOf(partitions));
                fill(partitions, 10, 15);
                readsOnce(PARTITIONS * 5, List.of(one, two));
                ConsumerGroupDescription described = describe(group);
                same("state", described.groupState(), GroupState.STABLE);
                same("members", described.members().size(), 2);
                same("type", described.type().toString(), protocol.equals("classic") ? "Classic" : "Consumer");
                one.commitSync();
                two.commitSync();
            }
            settle(PARTITIONS, List.of(one));
            fill(partitions, 15, 16);
            readsOnce(PARTITIONS, List.of(one));
        }
        same("state at the end", describe(group).groupState(), GroupState.EMPTY);
    }

    private void goesOn(String protocol) throws Exception {
        String group = "java-goes-on-" + protocol;
        TopicPartition partition = filled(group, 1).get(0);
        try (KafkaConsumer<String, String> consumer = member(protocol, group, Map.of("max.poll.records", 4))) {
            consumer.subscribe(List.of(group));
            readsOnce(4, List.of(consumer));
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(4, "a note")));
            same("note", consumer.committed(Set.of(partition)).get(partition).metadata(), "a note");
        }
        try (KafkaConsumer<String, String> consumer = member(protocol, group, Map.of())) {
            consumer.subscribe(List.of(group));
            readsOnce(6, List.of(consumer));
            same("position", consumer.position(partition), 10L);
        }
        try (KafkaConsumer<String, String> consumer = member(protocol, group, Map.of("enable.auto.commit", true))) {
            consumer.subscribe(List.of(group));
            readsOnce(6, List.of(consumer));
        }
        try (KafkaConsumer<String, String> consumer = member(protocol, group, Map.of())) {
            same("committed by the close", consumer.committed(Set.of(partition)).get(partition).offset(), 10L);
        }
    }

    private void comesBack(String protocol) throws Exception {
        String group = "java-static-" + protocol;
        filled(group, 2);
        try (KafkaConsumer<String, String> other = member(protocol, group, Map.of("group.instance.id", "other"))) {
            Set<TopicPartition> before;
            try (KafkaConsumer<String, String> member = member(protocol, group, Map.of("group.instance.id", "one"))) {
                other.subscribe(List.of(group));
                member.subscribe(List.of(group));
                settle(1, List.of(other, member));
                before = Set.copyOf(member.assignment());
            }
            try (KafkaConsumer<String, String> member = member(protocol, group, Map.of("group.instance.id", "one"))) {
                member.subscribe(List.of(group));
                settle(1, List.of(other, member));
                same("partitions", Set.copyOf(member.assignment()), before);
                same("members", describe(group).members().size(), 2);
            }
        }
    }

    private void byPattern(String protocol) throws Exception {
        String group = "java-pattern-" + protocol;
        filled(group + "-a", 1);
        try (KafkaConsumer<String, String> consumer = member(protocol, group, Map.of("metadata.max.age.ms", 500))) {
            if (protocol.equals("classic")) {
                consumer.subscribe(Pattern.compile(group + "-.*"));
            } else {
                consumer.subscribe(new SubscriptionPattern(group + "-.*"));
            }
            readsOnce(10, List.of(consumer));
            filled(group + "-b", 2);
            readsOnce(20, List.of(consumer));
        }
    }

    private void cooperative() throws Exception {
        String group = "java-cooperative";
        List<TopicPartition> partitions = filled(group, 4);
        Map<String, Object> settings = Map.of("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        try (KafkaConsumer<String, String> one = member("classic", group, settings);
                KafkaConsumer<String, String> two = member("classic", group, settings)) {
            one.subscribe(List.of(group));
            settle(4, List.of(one));
            two.subscribe(List.of(group));
            settle(2, List.of(one, two));
            one.seekToBeginning(one.assignment());
            two.seekToBeginning(two.assignment());
            readsOnce(partitions.size() * 10, List.of(one, two));
        }
    }

    private void migrates() throws Exception {
        String group = "java-migrates";
        List<TopicPartition> partitions = filled(group, 4);
        try (KafkaConsumer<String, String> old = member("classic", group, Map.of())) {
            old.subscribe(List.of(group));
            readsOnce(40, List.of(old));
            old.commitSync();
            try (KafkaConsumer<String, String> young = member("consumer", group, Map.of())) {
                young.subscribe(List.of(group));
                settle(2, List.of(old, young));
                same("type", describe(group).type().toString(), "Consumer");
                fill(partitions, 10, 12);
                readsOnce(8, List.of(old, young));
            }
            settle(4, List.of(old));
            same("type", describe(group).type().toString(), "Classic");
        }
    }

    private void offsetsByAdmin() throws Exception {
        String group = "java-by-admin";
        TopicPartition partition = filled(group, 1).get(0);
        try (Admin admin = broker.admin(); KafkaConsumer<String, String> consumer = member("classic", group, Map.of())) {
            admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(3))).all().get();
            same("offset", offsets(admin, group).get(partition).offset(), 3L);
            consumer.subscribe(List.of(group));
            readsOnce(7, List.of(consumer));
            fails(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
            AtomicBoolean isListed = new AtomicBoolean();
            admin.listGroups().all().get().forEach(each -> isListed.compareAndSet(false, each.groupId().equals(group)));
            holds("it is listed", isListed.get());
            ConsumerGroupMetadata about = consumer.groupMetadata();
            holds("a generation was made", about.generationId() > 0);
            consumer.unsubscribe();
            admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
            holds("no offset is left", offsets(admin, group).get(partition) == null);
            admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(3))).all().get();
            admin.deleteConsumerGroups(List.of(group)).all().get();
            fails(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        }
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(Admin admin, String group) throws Exception {
        return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
    }
}
