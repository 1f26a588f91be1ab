package streamkit.peer.spring;

import java.util.Map;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.stream.annotation.EnableBinding;
import org.springframework.cloud.stream.annotation.StreamListener;
import org.springframework.cloud.stream.messaging.Sink;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.Import;
import org.springframework.messaging.handler.annotation.Headers;

/** The book's consumer: binding `input`, text. */
@EnableBinding(Sink.class)
@SpringBootApplication
@ComponentScan(useDefaultFilters = false)
@Import(Listener.class)
public class ReceivingApplication {
    private final Listener listener;

    ReceivingApplication(Listener listener) {
        this.listener = listener;
    }

    @StreamListener(value = Sink.INPUT)
    public void receive(String receiveMsg, @Headers Map<String, Object> headers) {
        listener.receive(receiveMsg, headers);
    }
}
