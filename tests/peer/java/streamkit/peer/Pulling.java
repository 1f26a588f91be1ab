package streamkit.peer;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The consumers of this process that pull when they are asked to: pull consumers and lite pull consumers, by name. */
@SuppressWarnings("deprecation")
final class Pulling {
    private static final long POLL_TIMEOUT_MS = 45_000;

    private final Map<String, DefaultLitePullConsumer> polling = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPullConsumer> pulling = new ConcurrentHashMap<>();

    Object startPull(Arguments command) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(command.text("group"));
        consumer.setNamesrvAddr(command.text("nameServer"));
        consumer.setInstanceName(command.text("name"));
        consumer.start();
        pulling.put(command.text("name"), consumer);
        return null;
    }

    /** One pull of one queue; the application keeps its offset. */
    Object pull(Arguments command) throws Exception {
        DefaultMQPullConsumer consumer = pulling.get(command.text("name"));
        MessageQueue queue = queue(consumer.fetchSubscribeMessageQueues(command.text("topic")), command);
        PullResult pulled = consumer.pull(queue, command.text("expression", "*"), command.whole("offset", 0),
                command.integer("count", 32));
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("status", pulled.getPullStatus().name());
        fields.put("next", pulled.getNextBeginOffset());
        fields.put("min", pulled.getMinOffset());
        fields.put("max", pulled.getMaxOffset());
        fields.put("messages", written(pulled.getMsgFoundList()));
        return fields;
    }

    /** Commits an offset of a pull consumer and tells what is committed now. */
    Object commitPull(Arguments command) throws Exception {
        DefaultMQPullConsumer consumer = pulling.get(command.text("name"));
        MessageQueue queue = queue(consumer.fetchSubscribeMessageQueues(command.text("topic")), command);
        consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, command.whole("offset", 0), false);
        return consumer.fetchConsumeOffset(queue, true);
    }

    Object startPolling(Arguments command) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(command.text("group"));
        consumer.setNamesrvAddr(command.text("nameServer"));
        consumer.setInstanceName(command.text("name"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        String topic = command.text("topic");
        if (!command.has("queues")) {
            consumer.subscribe(topic, command.text("expression", "*"));
        }
        consumer.start();
        if (command.has("queues")) {
            List<String> ids = command.texts("queues");
            List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(topic));
            queues.removeIf(queue -> !ids.contains(String.valueOf(queue.getQueueId())));
            consumer.assign(queues);
        }
        polling.put(command.text("name"), consumer);
        return null;
    }

    /** What comes until enough came, or until `forMs` are over. */
    Object poll(Arguments command) throws Exception {
        DefaultLitePullConsumer consumer = polling.get(command.text("name"));
        List<MessageExt> polled = new ArrayList<>();
        long deadline = System.currentTimeMillis() + command.whole("forMs", POLL_TIMEOUT_MS);
        while (polled.size() < command.integer("count", 1) && System.currentTimeMillis() < deadline) {
            polled.addAll(consumer.poll(200));
        }
        return written(polled);
    }

    Object commit(Arguments command) throws Exception {
        polling.get(command.text("name")).commitSync();
        return null;
    }

    Object committed(Arguments command) throws Exception {
        DefaultLitePullConsumer consumer = polling.get(command.text("name"));
        return consumer.committed(queue(consumer.fetchMessageQueues(command.text("topic")), command));
    }

    /** Goes to an offset, or to one of a queue's ends. */
    Object seek(Arguments command) throws Exception {
        DefaultLitePullConsumer consumer = polling.get(command.text("name"));
        MessageQueue queue = queue(consumer.fetchMessageQueues(command.text("topic")), command);
        switch (command.text("offset")) {
            case "begin":
                consumer.seekToBegin(queue);
                break;
            case "end":
                consumer.seekToEnd(queue);
                break;
            default:
                consumer.seek(queue, command.whole("offset", 0));
        }
        return null;
    }

    /** Pauses one queue, or resumes it. */
    Object pause(Arguments command) throws Exception {
        DefaultLitePullConsumer consumer = polling.get(command.text("name"));
        MessageQueue queue = queue(consumer.fetchMessageQueues(command.text("topic")), command);
        if (command.has("resume")) {
            consumer.resume(List.of(queue));
        } else {
            consumer.pause(List.of(queue));
        }
        return null;
    }

    Object stop(Arguments command) throws Exception {
        DefaultLitePullConsumer polled = polling.remove(command.text("name"));
        DefaultMQPullConsumer pulled = pulling.remove(command.text("name"));
        return Hurry.through(() -> {
            if (polled != null) {
                polled.shutdown();
            } else {
                pulled.shutdown();
            }
            return null;
        });
    }

    private static MessageQueue queue(Iterable<MessageQueue> queues, Arguments command) throws MQClientException {
        for (MessageQueue queue : queues) {
            if (queue.getQueueId() == command.integer("queue", 0)) {
                return queue;
            }
        }
        throw new MQClientException("no queue " + command.integer("queue", 0), null);
    }

    private static List<Object> written(List<MessageExt> messages) {
        List<Object> written = new ArrayList<>();
        if (messages != null) {
            messages.forEach(message -> written.add(Messages.write(message)));
        }
        return written;
    }
}
