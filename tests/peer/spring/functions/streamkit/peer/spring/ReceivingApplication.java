package streamkit.peer.spring;

import java.util.function.Consumer;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.Import;
import org.springframework.messaging.Message;

/** A consumer of text: function `receive`. */
@SpringBootApplication
@ComponentScan(useDefaultFilters = false)
@Import(Listener.class)
public class ReceivingApplication {
    @Bean
    Consumer<Message<String>> receive(Listener listener) {
        return message -> listener.receive(message.getPayload(), message.getHeaders());
    }
}
