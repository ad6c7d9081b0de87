package interop;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer and a consumer that work until standard input ends. Their metrics are what matters. The admin client of Kafka 4.3
 * pushes none, whatever the broker.
 */
public final class TelemetryClients {
    private TelemetryClients() {}

    public static void main(String[] arguments) throws IOException, InterruptedException, ExecutionException {
        String address = arguments[0];
        String topic = arguments[1];
        Map<String, Object> reading = Map.of(
                "bootstrap.servers", address, "client.id", "java-consumer", "group.id", "java", "auto.offset.reset", "earliest",
                "key.deserializer", StringDeserializer.class, "value.deserializer", StringDeserializer.class);
        Map<String, Object> writing = Map.of(
                "bootstrap.servers", address, "client.id", "java-producer",
                "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(writing);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading)) {
            consumer.subscribe(List.of(topic));
            while (System.in.available() == 0) {
                producer.send(new ProducerRecord<>(topic, "v")).get();
                consumer.poll(Duration.ofMillis(50));
                consumer.commitSync();
            }
        }
    }
}
