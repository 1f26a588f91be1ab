package streamkit.peer.spring;

import java.util.Map;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.stream.annotation.EnableBinding;
import org.springframework.cloud.stream.annotation.StreamListener;
import org.springframework.cloud.stream.messaging.Sink;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.Import;
import org.springframework.messaging.handler.annotation.Headers;

/** A consumer of objects: binding `input`. */
@EnableBinding(Sink.class)
@SpringBootApplication
@ComponentScan(useDefaultFilters = false)
@Import(Listener.class)
public class OrderReceivingApplication {
    private final Listener listener;

    OrderReceivingApplication(Listener listener) {
        this.listener = listener;
    }

    @StreamListener(value = Sink.INPUT)
    public void receive(Order order, @Headers Map<String, Object> headers) {
        listener.receive(order, headers);
    }
}
