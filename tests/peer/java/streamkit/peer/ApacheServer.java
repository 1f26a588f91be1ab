package streamkit.peer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.store.config.BrokerRole;

/**
 * Apache's name server and broker in one process.
 *
 * <p>It prints READY once the broker is registered and lives until its standard input ends, so it never
 * outlives the test run that started it. The line "stop namesrv" stops the name server alone; "copy tables"
 * with a number makes a slave copy its master's tables now, which 4.9 does each 10 s and 5.x each minute.
 */
public final class ApacheServer {
    private ApacheServer() {}

    /** Arguments: the name server's configuration file, the broker's. */
    public static void main(String[] args) throws Exception {
        NamesrvController nameServer = NamesrvStartup.main0(new String[] {"-c", args[0]});
        BrokerController broker =
                BrokerStartup.start(BrokerStartup.createBrokerController(new String[] {"-c", args[1]}));
        awaitRegistration(nameServer, broker);
        System.out.println("READY");

        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        boolean served = true;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            if (line.equals("stop namesrv")) {
                NamesrvStartup.shutdown(nameServer);
                served = false;
                System.out.println("STOPPED namesrv");
            } else if (line.startsWith("copy tables ")) {
                // The answer to a registration has the address of the master.
                broker.registerBrokerAll(true, false, true);
                broker.getSlaveSynchronize().syncAll();
                System.out.println("COPIED tables " + line.substring("copy tables ".length()));
            }
        }
        boolean both = served;
        Hurry.through(() -> {
            BrokerStartup.shutdown(broker);
            if (both) {
                NamesrvStartup.shutdown(nameServer);
            }
            return null;
        });
        // Both shut down in order above; their own shutdown hooks would do it again.
        Runtime.getRuntime().halt(0);
    }

    /**
     * A 5.x broker registers at its start only if it has connected to the name server by then, which it
     * mostly has not, and next 10 s later. A slave brings the name server no topics.
     */
    private static void awaitRegistration(NamesrvController nameServer, BrokerController broker)
            throws InterruptedException {
        if (broker.getMessageStoreConfig().getBrokerRole() == BrokerRole.SLAVE) {
            return;
        }
        while (nameServer.getRouteInfoManager().pickupTopicRouteData("TBW102") == null) {
            broker.registerBrokerAll(true, false, true);
            Thread.sleep(20);
        }
    }
}
