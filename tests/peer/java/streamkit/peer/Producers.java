package streamkit.peer;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The producers of this process, by name. */
final class Producers {
    private static final long ROUTE_TIMEOUT_MS = 45_000;

    private final Map<String, DefaultMQProducer> running = new ConcurrentHashMap<>();

    Object start(Arguments command) throws Exception {
        String name = command.text("name");
        DefaultMQProducer producer = create(command);
        producer.setNamesrvAddr(command.text("nameServer"));
        producer.setInstanceName(name);
        producer.setSendMsgTimeout(command.integer("timeoutMs", 30_000));
        producer.setCompressMsgBodyOverHowmuch(command.integer("compressOver", 4096));
        producer.setRetryTimesWhenSendFailed(command.integer("retryTimes", 2));
        producer.setPollNameServerInterval(command.integer("pollNameServerMs", 1000));
        producer.setHeartbeatBrokerInterval(command.integer("heartbeatMs", 30_000));
        producer.setMaxMessageSize(command.integer("maxMessageSize", 4 * 1024 * 1024));
        producer.setVipChannelEnabled(command.has("vip"));
        producer.start();
        running.put(name, producer);
        if (command.has("transactional")) {
            announce(producer);
        }
        return name;
    }

    private static DefaultMQProducer create(Arguments command) {
        String group = command.text("group", "peer-producers");
        String namespace = command.text("namespace", null);
        if (command.has("transactional")) {
            TransactionMQProducer producer = new TransactionMQProducer(namespace, group);
            producer.setTransactionListener(
                    new Transactions(command.text("name"), command.text("check", null)));
            return producer;
        }
        if (command.has("traceTopic")) {
            return new DefaultMQProducer(
                    namespace, group, Keys.hook(command), true, command.text("traceTopic"));
        }
        return new DefaultMQProducer(namespace, group, Keys.hook(command));
    }

    /**
     * Tells the brokers of a producer's group at once. The heartbeat at its start knows no broker yet, and the
     * next one comes a second later; meanwhile brokers find nobody to ask, which counts as a check.
     */
    private static void announce(DefaultMQProducer producer) throws InterruptedException {
        MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        String topic = producer.getCreateTopicKey();
        long deadline = System.currentTimeMillis() + ROUTE_TIMEOUT_MS;
        client.updateTopicRouteInfoFromNameServer(topic);
        while (!client.getTopicRouteTable().containsKey(topic)) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("no route to " + topic);
            }
            Thread.sleep(10);
            client.updateTopicRouteInfoFromNameServer(topic);
        }
        client.sendHeartbeatToAllBrokerWithLock();
    }

    /** Sends each message by the mode asked for; a batch is one request with one result. */
    Object send(Arguments command) throws Exception {
        DefaultMQProducer producer = producer(command);
        List<Message> messages = new ArrayList<>();
        for (Arguments fields : command.objects("messages")) {
            messages.add(Messages.read(command.text("topic"), fields));
        }
        String mode = command.text("mode", "sync");
        if (mode.equals("batch")) {
            return List.of(Messages.write(producer.send(messages)));
        }
        if (mode.equals("async")) {
            return sendAsync(producer, messages);
        }
        List<Object> results = new ArrayList<>();
        for (int i = 0; i < messages.size(); i++) {
            Message message = messages.get(i);
            switch (mode) {
                case "sync":
                    results.add(Messages.write(producer.send(message)));
                    break;
                case "transaction":
                    results.add(Messages.write(producer.sendMessageInTransaction(message, null)));
                    break;
                case "oneway":
                    producer.sendOneway(message);
                    break;
                case "selector":
                    String key = command.texts("selectorKeys").get(i);
                    results.add(Messages.write(producer.send(message, new SelectMessageQueueByHash(), key)));
                    break;
                case "queue":
                    MessageQueue queue = queue(producer, command);
                    results.add(Messages.write(producer.send(message, queue)));
                    break;
                default:
                    throw new IllegalArgumentException("unknown mode " + mode);
            }
        }
        return results;
    }

    private static Object sendAsync(DefaultMQProducer producer, List<Message> messages) throws Exception {
        List<CompletableFuture<SendResult>> pending = new ArrayList<>();
        for (Message message : messages) {
            CompletableFuture<SendResult> future = new CompletableFuture<>();
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    future.complete(result);
                }

                @Override
                public void onException(Throwable failure) {
                    future.completeExceptionally(failure);
                }
            });
            pending.add(future);
        }
        List<Object> results = new ArrayList<>();
        for (CompletableFuture<SendResult> future : pending) {
            results.add(Messages.write(future.get(30, TimeUnit.SECONDS)));
        }
        return results;
    }

    /** The broker's offsets of one queue. */
    Object offsets(Arguments command) throws Exception {
        DefaultMQProducer producer = producer(command);
        MessageQueue queue = queue(producer, command);
        Map<String, Object> offsets = new LinkedHashMap<>();
        offsets.put("min", producer.minOffset(queue));
        offsets.put("max", producer.maxOffset(queue));
        offsets.put("earliestStoreTime", producer.earliestMsgStoreTime(queue));
        if (command.has("timestamp")) {
            offsets.put("search", producer.searchOffset(queue, command.whole("timestamp", 0)));
        }
        return offsets;
    }

    /** Sends a request and returns the reply. */
    Object request(Arguments command) throws Exception {
        Message request = Messages.read(command.text("topic"), command.objects("messages").get(0));
        Message reply = producer(command).request(request, command.whole("timeoutMs", 20_000));
        return Messages.write((MessageExt) reply);
    }

    /** Answers a request that a listener was given. */
    void reply(String producer, MessageExt request) throws Exception {
        byte[] body = ("re: " + Messages.text(request)).getBytes(StandardCharsets.UTF_8);
        running.get(producer).send(MessageUtil.createReplyMessage(request, body));
    }

    Object query(Arguments command) throws Exception {
        QueryResult found = producer(command)
                .queryMessage(
                        command.text("topic"), command.text("key"), command.integer("count", 32), 0, Long.MAX_VALUE);
        List<Object> messages = new ArrayList<>();
        for (MessageExt message : found.getMessageList()) {
            messages.add(Messages.write(message));
        }
        return messages;
    }

    /** One message by its offset id or its unique id. */
    Object view(Arguments command) throws Exception {
        return Messages.write(producer(command).viewMessage(command.text("topic"), command.text("messageId")));
    }

    Object stop(Arguments command) throws Exception {
        DefaultMQProducer producer = producer(command);
        running.remove(command.text("name"));
        return Hurry.through(() -> {
            producer.shutdown();
            return null;
        });
    }

    private DefaultMQProducer producer(Arguments command) {
        DefaultMQProducer producer = running.get(command.text("name"));
        if (producer == null) {
            throw new IllegalArgumentException("no producer " + command.text("name"));
        }
        return producer;
    }

    private static MessageQueue queue(DefaultMQProducer producer, Arguments command) throws Exception {
        int id = command.integer("queue", 0);
        for (MessageQueue queue : producer.fetchPublishMessageQueues(command.text("topic"))) {
            if (queue.getQueueId() == id) {
                return queue;
            }
        }
        throw new IllegalArgumentException("no queue " + id + " of " + command.text("topic"));
    }
}
