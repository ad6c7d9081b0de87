// Makes the stores of java_stores.json, and the facts of java_key_order.csv:
//
//     java MakeStores.java stores FILE.p12 ...   merges stores (password "secret-1") into one with key password "key-secret"
//     java MakeStores.java order FILE.p12 < lists   prints, per line KIND|ALIAS,ALIAS,..., how SunX509 orders the keys
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.security.KeyStore;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.X509KeyManager;

public class MakeStores {
    static final char[] STORE = "secret-1".toCharArray(), KEY = "key-secret".toCharArray();

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("stores")) {
            for (String kind : new String[] {"PKCS12", "JKS"}) {
                KeyStore made = empty(kind);
                for (int at = 1; at < arguments.length; at++) copy(load(arguments[at]), null, made);
                System.out.println(kind + " " + Base64.getEncoder().encodeToString(bytes(made)));
            }
            return;
        }
        KeyStore source = load(arguments[1]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String kind = line.split("\\|")[0], aliases = line.split("\\|")[1];
            KeyStore made = empty(kind), read = KeyStore.getInstance(kind);
            for (String alias : aliases.split(",")) copy(source, alias, made);
            read.load(new ByteArrayInputStream(bytes(made)), STORE);
            KeyManagerFactory factory = KeyManagerFactory.getInstance("SunX509");
            factory.init(read, KEY);
            X509KeyManager manager = (X509KeyManager) factory.getKeyManagers()[0];
            System.out.println(line + "|" + String.join(",", manager.getServerAliases("EC", null)));
        }
    }

    static KeyStore empty(String kind) throws Exception {
        KeyStore made = KeyStore.getInstance(kind);
        made.load(null, null);
        return made;
    }

    static KeyStore load(String file) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (FileInputStream input = new FileInputStream(file)) { store.load(input, STORE); }
        return store;
    }

    static void copy(KeyStore from, String alias, KeyStore to) throws Exception {
        String own = from.aliases().nextElement();
        to.setKeyEntry(alias == null ? own : alias, from.getKey(own, STORE), KEY, from.getCertificateChain(own));
    }

    static byte[] bytes(KeyStore store) throws Exception {
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        store.store(output, STORE);
        return output.toByteArray();
    }
}
