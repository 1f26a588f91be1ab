package streamkit.peer.spring;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.stereotype.Component;

/** What every listener does: it reports the delivery, and fails a message as often as it was told to. */
@Component
class Listener {
    @Value("${spring.application.name}")
    private String application;

    @Value("${peer.fail-times:0}")
    private int failTimes;

    private final Map<String, Integer> failures = new ConcurrentHashMap<>();

    void receive(Object payload, Map<String, Object> headers) {
        String text = String.valueOf(payload);
        SpringPeer.report(application, "message", text, headers);
        if (failures.merge(text, 1, Integer::sum) <= failTimes) {
            throw new IllegalStateException("told to fail " + text);
        }
    }
}
