package streamkit.peer;

import java.io.FileReader;
import java.io.PrintStream;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.Time;

/**
 * Apache Kafka, broker and controller in one process.
 *
 * <p>It prints READY once the broker serves and lives until its standard input ends, so it never outlives the
 * test run that started it.
 */
public final class KafkaServer {
    private KafkaServer() {}

    /** Argument: the server's configuration file, whose data directory is formatted on its first use. */
    public static void main(String[] args) throws Exception {
        PrintStream lines = System.out;
        System.setOut(System.err);
        Properties settings = new Properties();
        try (Reader file = new FileReader(args[0])) {
            settings.load(file);
        }
        if (!Files.exists(Path.of(settings.getProperty("log.dirs"), "meta.properties"))) {
            String[] format = {"format", "-t", Uuid.randomUuid().toString(), "-c", args[0]};
            if (StorageTool.execute(format, System.err) != 0) {
                throw new IllegalStateException("the data directory could not be formatted");
            }
        }
        KafkaRaftServer server = new KafkaRaftServer(KafkaConfig.fromProps(settings), Time.SYSTEM);
        server.startup();
        lines.println("READY");
        while (System.in.read() >= 0) {
            // Nothing is said to it; its end is what counts.
        }
        server.shutdown();
        Runtime.getRuntime().halt(0);
    }
}
