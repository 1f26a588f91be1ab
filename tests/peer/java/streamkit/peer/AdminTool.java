package streamkit.peer;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Apache's mqadmin, run in this process, and the admin client beneath it. */
final class AdminTool {
    private final Map<String, DefaultMQAdminExt> clients = new ConcurrentHashMap<>();

    /** Runs one command line: what it prints is the result. */
    synchronized String run(Arguments command) throws Exception {
        forgetCommands();
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        try (PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8)) {
            System.setOut(capture);
            System.setErr(capture);
            Hurry.through(() -> {
                MQAdminStartup.main0(command.texts("arguments").toArray(new String[0]), null);
                return null;
            });
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    /** Makes a topic on one broker. */
    Object createTopic(Arguments command) throws Exception {
        int queues = command.integer("queues", 4);
        TopicConfig config = new TopicConfig(command.text("topic"));
        config.setReadQueueNums(queues);
        config.setWriteQueueNums(queues);
        client(command.text("nameServer")).createAndUpdateTopicConfig(command.text("address"), config);
        return null;
    }

    /** Some commands keep the client that they have shut down, so each run gets commands of its own. */
    private static void forgetCommands() throws IllegalAccessException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (field.getType() == List.class) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    private synchronized DefaultMQAdminExt client(String nameServer) throws Exception {
        DefaultMQAdminExt client = clients.get(nameServer);
        if (client == null) {
            client = new DefaultMQAdminExt();
            client.setNamesrvAddr(nameServer);
            client.setInstanceName("admin-" + clients.size());
            client.start();
            clients.put(nameServer, client);
        }
        return client;
    }
}
