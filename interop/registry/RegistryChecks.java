package interop;

import static interop.Checks.fails;
import static interop.Checks.holds;
import static interop.Checks.same;

import io.confluent.kafka.schemaregistry.SchemaProvider;
import io.confluent.kafka.schemaregistry.avro.AvroSchema;
import io.confluent.kafka.schemaregistry.avro.AvroSchemaProvider;
import io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import io.confluent.kafka.schemaregistry.client.SchemaRegistryClient;
import io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import io.confluent.kafka.serializers.KafkaAvroDeserializer;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.GenericRecordBuilder;
import org.apache.avro.util.Utf8;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.SerializationException;

/**
 * Confluent's Java client and Avro serializers against headrace registry.
 *
 * <p>Arguments: the broker, the URLs of two registries without protection, then the URL of one with TLS and a password,
 * the file of its authority, and USER:PASSWORD.
 */
final class RegistryChecks {
    private static final String NARROW =
            "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"shop\",\"fields\":[{\"name\":\"id\",\"type\":\"int\"}]}";
    private static final String WIDE =
            "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"shop\",\"fields\":[{\"name\":\"id\",\"type\":\"long\"},"
                    + "{\"name\":\"note\",\"type\":\"string\",\"default\":\"none\"}]}";
    private static final String BASKET =
            "{\"type\":\"record\",\"name\":\"Basket\",\"fields\":[{\"name\":\"first\",\"type\":\"shop.Order\"}]}";

    private final String bootstrap;
    private final String urls;

    private RegistryChecks(String bootstrap, String urls) {
        this.bootstrap = bootstrap;
        this.urls = urls;
    }

    public static void main(String[] arguments) {
        RegistryChecks registry = new RegistryChecks(arguments[0], arguments[1] + "," + arguments[2]);
        Checks checks = new Checks();
        checks.run("Avro records by a producer and a consumer", registry::records);
        checks.run("a record of an older schema is read by a newer one", registry::evolution);
        checks.run("an incompatible schema is refused, and nothing is registered", registry::incompatible);
        checks.run("the latest schema in place of a registration", registry::latest);
        checks.run("lookups, compatibility and levels", registry::lookups);
        checks.run("references", registry::references);
        checks.run("modes and imports", registry::modes);
        checks.run("contexts", registry::contexts);
        checks.run("soft and permanent deletes", registry::deletes);
        checks.run("TLS and a password", () -> registry.secured(arguments[3], arguments[4], arguments[5]));
        System.out.println("done");
        System.exit(0);
    }

    private SchemaRegistryClient client() {
        return client(urls, Map.of());
    }

    private static SchemaRegistryClient client(String urls, Map<String, String> options) {
        List<SchemaProvider> providers = List.of(new AvroSchemaProvider());
        return new CachedSchemaRegistryClient(List.of(urls.split(",")), 100, providers, options);
    }

    private Map<String, Object> options(String... more) {
        Map<String, Object> found = new HashMap<>();
        found.put("bootstrap.servers", bootstrap);
        found.put("schema.registry.url", urls);
        for (int at = 0; at < more.length; at += 2) {
            found.put(more[at], more[at + 1]);
        }
        return found;
    }

    private KafkaAvroSerializer serializer(String... more) {
        KafkaAvroSerializer made = new KafkaAvroSerializer();
        made.configure(options(more), false);
        return made;
    }

    private KafkaAvroDeserializer deserializer(String... more) {
        KafkaAvroDeserializer made = new KafkaAvroDeserializer();
        made.configure(options(more), false);
        return made;
    }

    private static GenericRecord order(int id) {
        return new GenericRecordBuilder(new Schema.Parser().parse(NARROW)).set("id", id).build();
    }

    private static GenericRecord wideOrder(long id) {
        return new GenericRecordBuilder(new Schema.Parser().parse(WIDE)).set("id", id).build();
    }

    private void records() throws Exception {
        Map<String, Object> writing = options(
                "key.serializer", "io.confluent.kafka.serializers.KafkaAvroSerializer",
                "value.serializer", "io.confluent.kafka.serializers.KafkaAvroSerializer");
        try (KafkaProducer<String, GenericRecord> producer = new KafkaProducer<>(writing)) {
            for (int id = 0; id < 100; id++) {
                producer.send(new ProducerRecord<>("java-orders", 0, "k" + id, order(id)));
            }
            producer.flush();
        }
        Map<String, Object> reading = options(
                "key.deserializer", "io.confluent.kafka.serializers.KafkaAvroDeserializer",
                "value.deserializer", "io.confluent.kafka.serializers.KafkaAvroDeserializer");
        int seen = 0;
        try (KafkaConsumer<Object, GenericRecord> consumer = new KafkaConsumer<>(reading)) {
            TopicPartition partition = new TopicPartition("java-orders", 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (seen < 100) {
                for (ConsumerRecord<Object, GenericRecord> each : consumer.poll(Duration.ofSeconds(1))) {
                    same("the key", each.key().toString(), "k" + seen);
                    same("the value", each.value(), order(seen));
                    seen++;
                }
            }
        }
        same("versions of the value", client().getAllVersions("java-orders-value"), List.of(1));
        same("the key's schema", client().getLatestSchemaMetadata("java-orders-key").getSchema(), "\"string\"");
    }

    private void evolution() throws Exception {
        byte[] old = serializer().serialize("evolved", order(7));
        byte[] newer = serializer().serialize("evolved", wideOrder(8));
        same("versions", client().getAllVersions("evolved-value"), List.of(1, 2));
        Schema wide = new Schema.Parser().parse(WIDE);
        GenericRecord read = (GenericRecord) deserializer().deserialize("evolved", old, wide);
        same("the id", read.get("id"), 7L);
        same("the default", read.get("note"), new Utf8("none"));
        same("the new record", ((GenericData.Record) deserializer().deserialize("evolved", newer)).get("id"), 8L);
    }

    private void incompatible() throws Exception {
        serializer().serialize("strict", order(1));
        fails(SerializationException.class, () -> serializer().serialize("strict", "a text"));
        same("versions", client().getAllVersions("strict-value"), List.of(1));
        try {
            client().register("strict-value", new AvroSchema("\"string\""));
            throw new AssertionError("an incompatible schema was registered");
        } catch (RestClientException error) {
            same("the status and the code", List.of(error.getStatus(), error.getErrorCode()), List.of(409, 409));
        }
        List<String> reasons = client().testCompatibilityVerbose("strict-value", new AvroSchema("\"string\""));
        holds("the reasons name both types: " + reasons, reasons.toString().matches(".*(string.*record|record.*string).*"));
    }

    private void latest() throws Exception {
        String[] how = {"auto.register.schemas", "false", "use.latest.version", "true"};
        fails(SerializationException.class, () -> serializer(how).serialize("latest", order(1)));
        int id = client().register("latest-value", new AvroSchema(NARROW));
        byte[] data = serializer(how).serialize("latest", order(1));
        same("the id in the record", java.nio.ByteBuffer.wrap(data).getInt(1), id);
    }

    private void lookups() throws Exception {
        try (SchemaRegistryClient client = client()) {
            int id = client.register("found", new AvroSchema(NARROW));
            client.reset();
            same("the schema", client.getSchemaById(id).canonicalString(), new AvroSchema(NARROW).canonicalString());
            same("the id", client.getId("found", new AvroSchema(NARROW)), id);
            same("the version", client.getVersion("found", new AvroSchema(NARROW)), 1);
            holds("the id names the subject", client.getAllSubjectsById(id).contains("found"));
            holds("the version is named", client.getAllVersionsById(id).toString().contains("found"));
            holds("a wider schema fits", client.testCompatibility("found", new AvroSchema(WIDE)));
            same("the level", client.updateCompatibility("found", "FULL_TRANSITIVE"), "FULL_TRANSITIVE");
            same("the stored level", client.getCompatibility("found"), "FULL_TRANSITIVE");
            holds("int to long is not FULL", !client.testCompatibility("found", new AvroSchema(WIDE)));
            client.deleteCompatibility("found");
            fails(RestClientException.class, () -> client.getSchemaById(1_000_000));
            holds("by prefix", client.getAllSubjectsByPrefix("fou").contains("found"));
        }
    }

    private void references() throws Exception {
        try (SchemaRegistryClient client = client()) {
            client.register("order", new AvroSchema(NARROW));
            List<SchemaReference> parts = List.of(new SchemaReference("shop.Order", "order", 1));
            int id = client.register("basket", new AvroSchema(BASKET, parts, Map.of("shop.Order", NARROW), null));
            client.reset();
            AvroSchema found = (AvroSchema) client.getSchemaById(id);
            same("the references", found.references(), parts);
            same("the type of the field", found.rawSchema().getField("first").schema().getFullName(), "shop.Order");
            fails(RestClientException.class, () -> client.deleteSubject("order", true));
        }
    }

    private void modes() throws Exception {
        try (SchemaRegistryClient client = client()) {
            client.setMode("READONLY", "frozen");
            same("the mode", client.getMode("frozen"), "READONLY");
            fails(RestClientException.class, () -> client.register("frozen", new AvroSchema(NARROW)));
            client.deleteMode("frozen");
            client.setMode("IMPORT", "imported");
            same("the imported id", client.register("imported", new AvroSchema("\"bytes\""), 5, 77_000), 77_000);
            client.deleteMode("imported");
            same("the imported version", client.getAllVersions("imported"), List.of(5));
            same("the mode of all", client.getMode(), "READWRITE");
        }
    }

    private void contexts() throws Exception {
        try (SchemaRegistryClient client = client()) {
            int id = client.register(":.java:only", new AvroSchema("\"double\""));
            same("the first id of the context", id, 1);
            Collection<String> names = client.getAllContexts();
            holds("both contexts: " + names, names.containsAll(List.of(".", ".java")));
            client.reset();
            same("the schema", client.getSchemaBySubjectAndId(":.java:only", id).canonicalString(), "\"double\"");
        }
    }

    private void deletes() throws Exception {
        try (SchemaRegistryClient client = client()) {
            client.register("gone", new AvroSchema(NARROW));
            client.register("gone", new AvroSchema(WIDE));
            same("the deleted version", client.deleteSchemaVersion("gone", "1"), 1);
            same("what is left", client.getAllVersions("gone"), List.of(2));
            same("with deleted ones", client.getAllVersions("gone", true), List.of(1, 2));
            fails(RestClientException.class, () -> client.deleteSubject("gone", true));
            same("deleted softly", client.deleteSubject("gone"), List.of(2));
            holds("hidden", !client.getAllSubjects().contains("gone"));
            holds("shown", client.getAllSubjects(true).contains("gone"));
            same("deleted permanently", client.deleteSubject("gone", true), List.of(1, 2));
            holds("not shown", !client.getAllSubjects(true).contains("gone"));
        }
    }

    private void secured(String url, String authority, String login) throws Exception {
        Map<String, String> trust = Map.of(
                "schema.registry.ssl.truststore.type", "PEM", "schema.registry.ssl.truststore.location", authority);
        Map<String, String> full = new HashMap<>(trust);
        full.put("basic.auth.credentials.source", "USER_INFO");
        full.put("basic.auth.user.info", login);
        try (SchemaRegistryClient client = client(url, full)) {
            client.register("secret", new AvroSchema(NARROW));
            same("versions", client.getAllVersions("secret"), List.of(1));
        }
        try (SchemaRegistryClient client = client(url, trust)) {
            fails(RestClientException.class, () -> client.getAllVersions("secret"));
        }
        try (SchemaRegistryClient client = client(url, Map.of())) {
            fails(javax.net.ssl.SSLException.class, client::getAllSubjects);
        }
    }
}
