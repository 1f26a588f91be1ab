package streamkit.peer.spring;

import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import java.util.Map;
import java.util.HashMap;

/** A producer by StreamBridge, and the transaction listener `transactions` that its bindings may name. */
@SpringBootApplication
@ComponentScan(useDefaultFilters = false)
public class SendingApplication {
    @Bean
    Outbound outbound(StreamBridge bridge) {
        return bridge::send;
    }

    /** Decides as the message's headers `execute` and `check` say. */
    @Bean
    TransactionListener transactions(@Value("${spring.application.name}") String application) {
        return new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return decide("execute", message);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return decide("check", message);
            }

            private LocalTransactionState decide(String step, Message message) {
                Map<String, Object> properties = new HashMap<>(message.getProperties());
                SpringPeer.report(application, step, new String(message.getBody()), properties);
                return switch (message.getProperty(step)) {
                    case "COMMIT" -> LocalTransactionState.COMMIT_MESSAGE;
                    case "ROLLBACK" -> LocalTransactionState.ROLLBACK_MESSAGE;
                    default -> LocalTransactionState.UNKNOW;
                };
            }
        };
    }
}
