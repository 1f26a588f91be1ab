package streamkit.peer.spring;

import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.stream.annotation.EnableBinding;
import org.springframework.cloud.stream.messaging.Source;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.messaging.MessageChannel;

/** The book's producer: binding `output`. */
@EnableBinding(Source.class)
@SpringBootApplication
@ComponentScan(useDefaultFilters = false)
public class SendingApplication {
    @Bean
    Outbound outbound(ApplicationContext context) {
        return (binding, message) -> context.getBean(binding, MessageChannel.class).send(message);
    }
}
