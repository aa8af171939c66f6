import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/** For each line `rule;;rule;;principal`: the name that Kafka's class gives, `!` if it gives none, `?` for a bad rule. */
public class KerberosRules {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> parts = Arrays.asList(line.split(";;", -1));
            System.out.println("=" + named(parts.subList(0, parts.size() - 1), parts.get(parts.size() - 1)));
        }
    }

    private static String named(List<String> rules, String principal) {
        KerberosShortNamer namer;
        try {
            namer = KerberosShortNamer.fromUnparsedRules("HOME", rules);
        } catch (IllegalArgumentException refused) {
            return "?";
        }
        try {
            return namer.shortName(KerberosName.parse(principal));
        } catch (Exception none) {
            return "!";
        }
    }
}
