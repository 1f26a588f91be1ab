package streamkit.peer.spring;

import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.stream.annotation.EnableBinding;
import org.springframework.cloud.stream.messaging.Source;
import org.springframework.context.ApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.Import;
import org.springframework.messaging.Message;
import org.springframework.messaging.MessageChannel;

/** The book's transactional producer: binding `output`, producer group `OrderTransactionGroup`. */
@EnableBinding(Source.class)
@SpringBootApplication
@ComponentScan(useDefaultFilters = false)
@Import(TransactionalApplication.TransactionMsgListener.class)
public class TransactionalApplication {
    @Bean
    Outbound outbound(ApplicationContext context) {
        return (binding, message) -> context.getBean(binding, MessageChannel.class).send(message);
    }

    /** Decides as the message's headers `execute` and `check` say. */
    @RocketMQTransactionListener(txProducerGroup = "OrderTransactionGroup")
    static class TransactionMsgListener implements RocketMQLocalTransactionListener {
        @Value("${spring.application.name}")
        private String application;

        @Override
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return decide("execute", message);
        }

        @Override
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            return decide("check", message);
        }

        private RocketMQLocalTransactionState decide(String step, Message<?> message) {
            String payload = new String((byte[]) message.getPayload());
            SpringPeer.report(application, step, payload, message.getHeaders());
            return RocketMQLocalTransactionState.valueOf(String.valueOf(message.getHeaders().get(step)));
        }
    }
}
