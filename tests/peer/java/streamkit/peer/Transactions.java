package streamkit.peer;

import java.util.Map;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A transaction listener that decides as the message's properties `execute` and `check` say (COMMIT,
 * ROLLBACK, anything else: unknown) and reports what the broker asks. One that is made with an answer gives that
 * one to whatever the broker asks.
 */
final class Transactions implements TransactionListener {
    private final String producer;
    private final String answer;

    /** `answer` may be null. */
    Transactions(String producer, String answer) {
        this.producer = producer;
        this.answer = answer;
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return decided(message.getProperty("execute"));
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        Map<String, Object> event = Messages.write(message);
        event.put("event", "check");
        event.put("consumer", producer);
        event.put("transactionId", message.getTransactionId());
        PeerClient.print(event);
        return decided(answer != null ? answer : message.getProperty("check"));
    }

    private static LocalTransactionState decided(String decision) {
        if ("COMMIT".equals(decision)) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
        return "ROLLBACK".equals(decision)
                ? LocalTransactionState.ROLLBACK_MESSAGE
                : LocalTransactionState.UNKNOW;
    }
}
