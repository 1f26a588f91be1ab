package streamkit.peer.spring;

import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.kafka.support.KafkaNull;
import org.springframework.messaging.Message;

/** A producer by StreamBridge. */
@SpringBootApplication
@ComponentScan(useDefaultFilters = false)
public class SendingApplication {
    @Bean
    Outbound outbound(StreamBridge bridge) {
        return new Outbound() {
            @Override
            public boolean send(String binding, Message<?> message) {
                return bridge.send(binding, message);
            }

            @Override
            public Object nothing() {
                return KafkaNull.INSTANCE;
            }
        };
    }
}
