package streamkit.peer;

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages, queues and send results as JSON objects, and messages from them. */
final class Messages {
    private Messages() {}

    static Message read(String topic, Arguments fields) {
        Message message = new Message(topic, Base64.getDecoder().decode(fields.text("body")));
        fields.pairs("properties").forEach(message::putUserProperty);
        if (fields.has("tags")) {
            message.setTags(fields.text("tags"));
        }
        if (fields.has("keys")) {
            message.setKeys(fields.text("keys"));
        }
        if (fields.has("delayLevel")) {
            message.setDelayTimeLevel(fields.integer("delayLevel", 0));
        }
        // Clients before 5.0 have no methods for these, but send what properties they are given.
        for (String timer : List.of("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")) {
            if (fields.has(timer)) {
                MessageAccessor.putProperty(message, timer, fields.text(timer));
            }
        }
        message.setFlag(fields.integer("flag", 0));
        return message;
    }

    static Map<String, Object> write(MessageExt message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", message.getTopic());
        fields.put("queue", message.getQueueId());
        fields.put("offset", message.getQueueOffset());
        fields.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        fields.put("tags", message.getTags());
        fields.put("keys", message.getKeys());
        fields.put("flag", message.getFlag());
        fields.put("properties", new LinkedHashMap<>(message.getProperties()));
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("id", message.getMsgId());
        fields.put("offsetId", offsetId(message));
        fields.put("broker", message.getBrokerName());
        fields.put("sysFlag", message.getSysFlag());
        fields.put("commitLogOffset", message.getCommitLogOffset());
        fields.put("storeSize", message.getStoreSize());
        fields.put("bodyCrc", message.getBodyCRC());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("bornHost", message.getBornHostString());
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        return fields;
    }

    static Map<String, Object> write(SendResult sent) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("status", sent.getSendStatus().name());
        fields.put("id", sent.getMsgId());
        fields.put("offsetId", sent.getOffsetMsgId());
        fields.put("topic", sent.getMessageQueue().getTopic());
        fields.put("broker", sent.getMessageQueue().getBrokerName());
        fields.put("queue", sent.getMessageQueue().getQueueId());
        fields.put("offset", sent.getQueueOffset());
        return fields;
    }

    static Map<String, Object> write(MessageQueue queue) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", queue.getTopic());
        fields.put("broker", queue.getBrokerName());
        fields.put("queue", queue.getQueueId());
        return fields;
    }

    static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static String offsetId(MessageExt message) {
        return message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : null;
    }
}
