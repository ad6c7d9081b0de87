package interop;

import static interop.Checks.fails;
import static interop.Checks.holds;
import static interop.Checks.same;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.clients.admin.AlterClientQuotasResult;
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/** Client quotas by the admin client: entities, filters, and what a broker refuses. */
final class QuotaChecks {
    private static final String PRODUCE = "producer_byte_rate";
    // The limits are so high that they slow down nobody.
    private static final double LIMIT = 1e12;
    private final Admin admin;

    QuotaChecks(Broker broker) {
        this.admin = broker.admin();
    }

    void runAll(Checks checks) {
        checks.run("admin sets, describes and removes client quotas", this::quotas);
        checks.run("admin filters client quotas", this::filters);
        checks.run("admin validates client quotas", this::validates);
        checks.run("admin is refused wrong client quotas", this::wrongQuotas);
        admin.close();
    }

    private void quotas() throws Exception {
        ClientQuotaEntity user = entity("user", "java user", "client-id", null);
        alter(user, PRODUCE, LIMIT);
        alter(user, "request_percentage", 99999.5);
        same("quotas", described(user), Map.of(PRODUCE, LIMIT, "request_percentage", 99999.5));
        alter(user, "request_percentage", null);
        same("quotas", described(user), Map.of(PRODUCE, LIMIT));
        alter(user, PRODUCE, null);
        same("quotas", described(user), Map.of());
        ClientQuotaEntity address = entity("ip", "127.0.0.9");
        alter(address, "connection_creation_rate", 1e6);
        same("quotas", described(address), Map.of("connection_creation_rate", 1e6));
        alter(address, "connection_creation_rate", null);
    }

    private void filters() throws Exception {
        ClientQuotaEntity named = entity("user", "java-a");
        ClientQuotaEntity client = entity("user", "java-a", "client-id", "java-b");
        ClientQuotaEntity others = entity("client-id", null);
        List<ClientQuotaEntity> all = List.of(named, client, others);
        for (ClientQuotaEntity each : all) {
            alter(each, PRODUCE, LIMIT);
        }
        ClientQuotaFilterComponent user = ClientQuotaFilterComponent.ofEntity("user", "java-a");
        same("all of a user", found(ClientQuotaFilter.contains(List.of(user))), Set.of(named, client));
        same("only the user", found(ClientQuotaFilter.containsOnly(List.of(user))), Set.of(named));
        ClientQuotaFilterComponent someClient = ClientQuotaFilterComponent.ofEntityType("client-id");
        same("any client", found(ClientQuotaFilter.contains(List.of(someClient))), Set.of(client, others));
        ClientQuotaFilterComponent noName = ClientQuotaFilterComponent.ofDefaultEntity("client-id");
        same("default client", found(ClientQuotaFilter.contains(List.of(noName))), Set.of(others));
        holds("no filter", found(ClientQuotaFilter.all()).containsAll(all));
        for (ClientQuotaEntity each : all) {
            alter(each, PRODUCE, null);
        }
        fails(InvalidRequestException.class, () -> found(ClientQuotaFilter.contains(List.of(user, user))));
        fails(UnsupportedVersionException.class, () -> found(ClientQuotaFilter.contains(
                List.of(ClientQuotaFilterComponent.ofEntityType("planet")))));
        fails(InvalidRequestException.class, () -> found(ClientQuotaFilter.contains(
                List.of(user, ClientQuotaFilterComponent.ofEntityType("ip")))));
    }

    private void validates() throws Exception {
        ClientQuotaEntity user = entity("user", "java-validated");
        List<ClientQuotaAlteration> wanted = List.of(alteration(user, PRODUCE, LIMIT));
        admin.alterClientQuotas(wanted, new AlterClientQuotasOptions().validateOnly(true)).all().get();
        same("quotas", described(user), Map.of());
    }

    private void wrongQuotas() throws Exception {
        ClientQuotaEntity user = entity("user", "java-wrong");
        refused(user, PRODUCE, -1.0);
        refused(user, PRODUCE, 0.0);
        refused(user, PRODUCE, 0.5);
        refused(user, PRODUCE, 1e19);
        refused(user, "nonsense", 1.0);
        refused(user, "connection_creation_rate", 1.0);
        refused(entity("planet", "x"), PRODUCE, 1.0);
        refused(entity("user", "x", "ip", "127.0.0.1"), PRODUCE, 1.0);
        refused(entity("ip", "no.such.host.invalid"), "connection_creation_rate", 1.0);
        refused(entity("ip", "127.0.0.1"), PRODUCE, 1.0);
        ClientQuotaEntity good = entity("user", "java-good");
        AlterClientQuotasResult both = admin.alterClientQuotas(
                List.of(alteration(user, PRODUCE, -1.0), alteration(good, PRODUCE, LIMIT)));
        fails(InvalidRequestException.class, () -> both.values().get(user).get());
        both.values().get(good).get();
        same("quotas", described(user), Map.of());
        same("quotas", described(good), Map.of(PRODUCE, LIMIT));
        alter(good, PRODUCE, null);
    }

    private void refused(ClientQuotaEntity entity, String key, Double value) throws Exception {
        fails(InvalidRequestException.class, () -> alter(entity, key, value));
    }

    private void alter(ClientQuotaEntity entity, String key, Double value) throws Exception {
        admin.alterClientQuotas(List.of(alteration(entity, key, value))).all().get();
    }

    private static ClientQuotaAlteration alteration(ClientQuotaEntity entity, String key, Double value) {
        return new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op(key, value)));
    }

    private Map<String, Double> described(ClientQuotaEntity entity) throws Exception {
        List<ClientQuotaFilterComponent> components = entity.entries().entrySet().stream()
                .map(each -> each.getValue() == null
                        ? ClientQuotaFilterComponent.ofDefaultEntity(each.getKey())
                        : ClientQuotaFilterComponent.ofEntity(each.getKey(), each.getValue()))
                .toList();
        return admin.describeClientQuotas(ClientQuotaFilter.containsOnly(components)).entities().get()
                .getOrDefault(entity, Map.of());
    }

    private Collection<ClientQuotaEntity> found(ClientQuotaFilter filter) throws Exception {
        return admin.describeClientQuotas(filter).entities().get().keySet();
    }

    private static ClientQuotaEntity entity(String... typesAndNames) {
        Map<String, String> entries = new HashMap<>();
        for (int at = 0; at < typesAndNames.length; at += 2) {
            entries.put(typesAndNames[at], typesAndNames[at + 1]);
        }
        return new ClientQuotaEntity(entries);
    }
}
