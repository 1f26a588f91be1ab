package streamkit.peer;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Apache's Java client as a server of one test run: a JSON object a line in, a JSON object a line out.
 *
 * <p>A command {"id": 7, "do": "send", ...} is answered by {"id": 7, "result": ...} or {"id": 7, "error":
 * text, "type": class, "code": response code}. What consumers receive comes as {"event": "message",
 * "consumer": name, ...}. Commands run side by side; the process ends with its standard input.
 */
public final class PeerClient {
    // Apache's admin tool prints to System.out, which is therefore ours to redirect.
    private static final PrintStream LINES =
            new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

    private final Producers producers = new Producers();
    private final Consumers consumers = new Consumers(producers);
    private final Pulling pulling = new Pulling();
    private final AdminTool admin = new AdminTool();

    private PeerClient() {}

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        PeerClient client = new PeerClient();
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        LINES.println("READY");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Arguments command = new Arguments(RemotingSerializable.fromJson(line, Map.class));
            pool.execute(() -> client.answer(command));
        }
        Runtime.getRuntime().halt(0);
    }

    /** Prints one event or answer; safe from any thread. */
    static void print(Map<String, Object> object) {
        String line = RemotingSerializable.toJson(object, false);
        synchronized (LINES) {
            LINES.println(line);
        }
    }

    private void answer(Arguments command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", command.integer("id", 0));
        try {
            answer.put("result", run(command));
        } catch (Throwable failure) {
            answer.put("error", String.valueOf(failure.getMessage()));
            answer.put("type", failure.getClass().getSimpleName());
            answer.put("code", responseCode(failure));
        }
        print(answer);
    }

    private Object run(Arguments command) throws Exception {
        switch (command.text("do", "")) {
            case "startProducer":
                return producers.start(command);
            case "send":
                return producers.send(command);
            case "offsets":
                return producers.offsets(command);
            case "query":
                return producers.query(command);
            case "view":
                return producers.view(command);
            case "stopProducer":
                return producers.stop(command);
            case "startConsumer":
                return consumers.start(command);
            case "request":
                return producers.request(command);
            case "startPull":
                return pulling.startPull(command);
            case "pull":
                return pulling.pull(command);
            case "commitPull":
                return pulling.commitPull(command);
            case "startPolling":
                return pulling.startPolling(command);
            case "poll":
                return pulling.poll(command);
            case "commit":
                return pulling.commit(command);
            case "committed":
                return pulling.committed(command);
            case "seek":
                return pulling.seek(command);
            case "pause":
                return pulling.pause(command);
            case "stopPulling":
                return pulling.stop(command);
            case "assigned":
                return consumers.assigned(command);
            case "rebalance":
                return consumers.rebalance(command);
            case "stopConsumer":
                return consumers.stop(command);
            case "admin":
                return admin.run(command);
            case "sign":
                return Keys.sign(command);
            case "createTopic":
                return admin.createTopic(command);
            default:
                throw new IllegalArgumentException("unknown command " + command.text("do", ""));
        }
    }

    private static int responseCode(Throwable failure) {
        if (failure instanceof MQBrokerException) {
            return ((MQBrokerException) failure).getResponseCode();
        }
        if (failure instanceof MQClientException) {
            return ((MQClientException) failure).getResponseCode();
        }
        return -1;
    }
}
