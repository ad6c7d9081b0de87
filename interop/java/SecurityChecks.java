package interop;

import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.AuthorizationException;

/** The Java clients at every endpoint of a secured broker; an endpoint is a file of settings, NAME.properties. */
final class SecurityChecks {
    private static final int COUNT = 10;
    private static final List<String> NOT_ENDPOINTS = List.of("server.properties", "admin.properties");

    static void runAll(Checks checks, Path folder) throws Exception {
        List<Path> files;
        try (Stream<Path> found = Files.list(folder)) {
            files = found.filter(each -> each.toString().endsWith(".properties")
                    && !NOT_ENDPOINTS.contains(each.getFileName().toString())).sorted().toList();
        }
        for (Path file : files) {
            String name = file.getFileName().toString().replace(".properties", "");
            Map<String, Object> settings = read(file);
            String topic = (name.equals("ssl-certificate") || name.startsWith("sasl") ? "secure-" : "open-") + "java-" + name;
            checks.run(name + ": records", () -> records(settings, topic));
            checks.run(name + ": a topic without an ACL is denied",
                    () -> Checks.fails(AuthorizationException.class, () -> send(settings, "forbidden")));
            Object login = settings.get("sasl.jaas.config");
            if (login != null && login.toString().contains("password=")) {
                Map<String, Object> wrong = new HashMap<>(settings);
                wrong.put("sasl.jaas.config", login.toString().replaceAll("password=\"[^\"]*\"", "password=\"wrong\""));
                checks.run(name + ": a wrong password is refused",
                        () -> Checks.fails(AuthenticationException.class, () -> send(wrong, topic)));
            }
        }
    }

    private static Map<String, Object> read(Path file) throws Exception {
        Properties properties = new Properties();
        try (InputStream in = Files.newInputStream(file)) {
            properties.load(in);
        }
        Map<String, Object> settings = new HashMap<>();
        properties.stringPropertyNames().forEach(each -> settings.put(each, properties.getProperty(each)));
        settings.putAll(Map.of("request.timeout.ms", 10_000, "default.api.timeout.ms", 15_000, "delivery.timeout.ms", 12_000,
                "max.block.ms", 15_000, "auto.offset.reset", "earliest",
                "ssl.endpoint.identification.algorithm", "https"));
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return settings;
    }

    private static void send(Map<String, Object> settings, String topic) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int index = 0; index < COUNT; index++) {
                producer.send(new ProducerRecord<>(topic, "value" + index)).get();
            }
        }
    }

    private static void records(Map<String, Object> settings, String topic) throws Exception {
        send(settings, topic);
        Map<String, Object> grouped = new HashMap<>(settings);
        grouped.put("group.id", topic);
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(grouped)) {
            consumer.subscribe(List.of(topic));
            long ends = System.currentTimeMillis() + 15_000;
            while (values.size() < COUNT && System.currentTimeMillis() < ends) {
                consumer.poll(Broker.MOMENT).forEach(each -> values.add(each.value()));
            }
        }
        Checks.same("records", values.size(), COUNT);
    }
}
