package interop;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.common.telemetry.internals.ClientTelemetryUtils;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/** Makes Apache Kafka accept pushed metrics (KIP-714). It writes the client id and the name of each metric to a file. */
public final class TelemetryReceiver implements MetricsReporter, ClientTelemetryExporterProvider {
    private Path file;

    @Override
    public void configure(Map<String, ?> configs) {
        file = Path.of(configs.get("interop.telemetry.file").toString());
    }

    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        return this::received;
    }

    private synchronized void received(ClientTelemetryContext context, ClientTelemetryPayload payload) {
        String client = context.authorizableRequestContext().clientId();
        List<String> lines = ClientTelemetryUtils.deserializeMetricsData(payload.data()).getResourceMetricsList().stream()
                .flatMap(resource -> resource.getScopeMetricsList().stream())
                .flatMap(scope -> scope.getMetricsList().stream())
                .map(metric -> client + " " + metric.getName())
                .toList();
        try {
            Files.write(file, lines, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}
}
