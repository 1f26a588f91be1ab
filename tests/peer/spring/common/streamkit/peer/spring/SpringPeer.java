package streamkit.peer.spring;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.springframework.boot.Banner;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

/**
 * Spring Boot applications of one test run in one process: a JSON object a line in, a JSON object a line out.
 *
 * <p>A command {"id": 7, "do": "send", ...} is answered by {"id": 7, "result": ...} or {"id": 7, "error":
 * text, "type": class}. What an application's listeners receive comes as {"event": ..., "source": name,
 * ...}. The process ends with its standard input.
 */
public final class SpringPeer {
    private static final PrintStream LINES = lines();
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, ConfigurableApplicationContext> running = new ConcurrentHashMap<>();

    private SpringPeer() {}

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        SpringPeer peer = new SpringPeer();
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        LINES.println("READY");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JsonNode command = JSON.readTree(line);
            pool.execute(() -> peer.answer(command));
        }
        Runtime.getRuntime().halt(0);
    }

    /** Prints what a listener was given: its payload as text, and each header's class and value. */
    static void report(String application, String event, String payload, Map<String, Object> headers) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("event", event);
        told.put("source", application);
        told.put("payload", payload);
        Map<String, Object> values = new LinkedHashMap<>();
        Map<String, String> types = new LinkedHashMap<>();
        headers.forEach((name, value) -> {
            if (value != null) {
                values.put(name, plain(value));
                types.put(name, value.getClass().getSimpleName());
            }
        });
        told.put("headers", values);
        told.put("types", types);
        print(told);
    }

    private void answer(JsonNode command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", command.get("id").asInt());
        try {
            answer.put("result", run(command));
        } catch (Throwable failure) {
            Throwable cause = failure;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            answer.put("error", failure + (cause == failure ? "" : " <- " + cause));
            answer.put("type", cause.getClass().getSimpleName());
            answer.put("code", -1);
        }
        print(answer);
    }

    private Object run(JsonNode command) throws Exception {
        String name = command.get("name").asText();
        switch (command.get("do").asText()) {
            case "start":
                running.put(name, start(name, command));
                return name;
            case "send":
                Outbound outbound = running.get(name).getBean(Outbound.class);
                return outbound.send(command.get("binding").asText(), message(command, outbound));
            case "stop":
                running.remove(name).close();
                return name;
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }

    /** One at a time: RocketMQ's clients of one process are told apart by a system property. */
    private synchronized ConfigurableApplicationContext start(String name, JsonNode command) throws Exception {
        System.setProperty("rocketmq.client.name", name);
        List<String> arguments = JSON.convertValue(command.get("arguments"), List.class);
        return new SpringApplicationBuilder(
                        Class.forName("streamkit.peer.spring." + command.get("application").asText()))
                .web(WebApplicationType.NONE)
                .bannerMode(Banner.Mode.OFF)
                .registerShutdownHook(false)
                .properties("spring.application.name=" + name, "spring.jmx.enabled=false")
                .run(arguments.toArray(new String[0]));
    }

    private static Message<?> message(JsonNode command, Outbound outbound) throws Exception {
        JsonNode given = command.get("payload");
        Object payload = given.isNull() ? outbound.nothing()
                : given.isTextual() ? given.asText()
                : JSON.treeToValue(given, Order.class);
        Map<String, Object> headers = JSON.convertValue(command.get("headers"), Map.class);
        return MessageBuilder.withPayload(payload).copyHeaders(headers).build();
    }

    private static Object plain(Object value) {
        if (value instanceof byte[]) {
            return new String((byte[]) value, StandardCharsets.UTF_8);
        }
        boolean json = value instanceof Number || value instanceof Boolean
                || value instanceof Map || value instanceof List;
        return json ? value : String.valueOf(value);
    }

    private static void print(Map<String, Object> object) {
        try {
            String line = JSON.writeValueAsString(object);
            synchronized (LINES) {
                LINES.println(line);
            }
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** Spring and RocketMQ print to System.out, which is therefore not ours. */
    private static PrintStream lines() {
        try {
            return new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
    }
}
