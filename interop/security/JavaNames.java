import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;

import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Answers what Java and Kafka make of names: one line in, one line out, everything in hexadecimal digits.
 *
 * "name DER" answers the distinguished name of the DER. "map RULES NAME" answers the user name of a distinguished name.
 * A refusal answers "error", and no rule that applies answers "none".
 */
final class JavaNames {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(words[0].equals("name") ? name(HEX.parseHex(words[1])) : map(text(words[1]), text(words[2])));
        }
    }

    private static String name(byte[] der) {
        try {
            return hex(new X500Principal(der).getName());
        } catch (IllegalArgumentException refused) {
            return "error";
        }
    }

    private static String map(String rules, String name) {
        try {
            return hex(SslPrincipalMapper.fromRules(rules).getName(name));
        } catch (java.io.IOException none) {
            return "none";
        } catch (RuntimeException refused) {
            return "error";
        }
    }

    private static String text(String hex) {
        return new String(HEX.parseHex(hex), StandardCharsets.UTF_8);
    }

    private static String hex(String text) {
        return HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
