package streamkit.peer.spring;

import java.util.function.Consumer;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.Import;
import org.springframework.messaging.Message;

/** A consumer of objects: function `receive`. */
@SpringBootApplication
@ComponentScan(useDefaultFilters = false)
@Import(Listener.class)
public class OrderReceivingApplication {
    @Bean
    Consumer<Message<Order>> receive(Listener listener) {
        return message -> listener.receive(message.getPayload(), message.getHeaders());
    }
}
