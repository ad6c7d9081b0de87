package interop;

import java.nio.file.Path;

/**
 * The Java clients of Apache Kafka against a broker. `check` prints a line for each thing that it tried; the other
 * commands fill a topic and say what is in one, for the comparison of files in script/interop; `load` goes on while
 * brokers die.
 */
public final class Main {
    public static void main(String[] arguments) throws Exception {
        String command = arguments.length > 1 ? arguments[0] : "";
        Broker broker = new Broker(arguments.length > 1 ? arguments[1] : "");
        switch (command) {
            case "check" -> check(broker);
            case "fill" -> Contents.fill(broker, arguments[2], arguments[3], arguments[4]);
            case "fill-transactions" -> Contents.fillTransactions(broker, arguments[2]);
            case "leave-open" -> Contents.leaveOpen(broker, arguments[2]);
            case "load" -> Load.run(broker, arguments[2], Path.of(arguments[3]));
            case "security" -> security(Path.of(arguments[1]));
            case "digest" -> Contents.digest(broker, arguments[2]);
            default -> {
                System.err.println("usage: interop.Main check|fill|fill-transactions|leave-open|load|digest"
                        + " ADDRESS [TOPIC [SEGMENT_BYTES SEGMENT_MS | STOP_FILE]], or security FOLDER");
                System.exit(2);
            }
        }
        System.exit(0);
    }

    private static void check(Broker broker) {
        Checks checks = new Checks();
        new ProducerChecks(broker).runAll(checks);
        new ConsumerChecks(broker).runAll(checks);
        new GroupChecks(broker).runAll(checks);
        new TransactionChecks(broker).runAll(checks);
        new AdminChecks(broker).runAll(checks);
        new QuotaChecks(broker).runAll(checks);
        System.out.println("done");
    }

    private static void security(Path folder) throws Exception {
        SecurityChecks.runAll(new Checks(), folder);
        System.out.println("done");
    }
}
