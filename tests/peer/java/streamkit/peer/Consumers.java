package streamkit.peer;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The push consumers of this process, by name; what they receive is printed as events. */
final class Consumers {
    private static final long ROUTE_TIMEOUT_MS = 45_000;

    private final Map<String, DefaultMQPushConsumer> running = new ConcurrentHashMap<>();
    private final Producers producers;

    /** Replies to requests are sent by one of `producers`. */
    Consumers(Producers producers) {
        this.producers = producers;
    }

    Object start(Arguments command) throws Exception {
        String name = command.text("name");
        boolean broadcasting = command.text("model", "CLUSTERING").equals("BROADCASTING");
        DefaultMQPushConsumer consumer =
                new DefaultMQPushConsumer(
                        command.text("namespace", null), command.text("group"), Keys.hook(command),
                        new AllocateMessageQueueAveragely(),
                        command.has("traceTopic"), command.text("traceTopic", null));
        consumer.setNamesrvAddr(command.text("nameServer"));
        consumer.setInstanceName(command.text("instance", name));
        consumer.setPollNameServerInterval(command.integer("pollNameServerMs", 1000));
        consumer.setHeartbeatBrokerInterval(command.integer("heartbeatMs", 30_000));
        consumer.setPersistConsumerOffsetInterval(command.integer("persistOffsetsMs", 5_000));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
                command.text("from", "CONSUME_FROM_FIRST_OFFSET")));
        consumer.setConsumeThreadMin(command.integer("threads", 4));
        consumer.setConsumeThreadMax(command.integer("threads", 4));
        consumer.setConsumeMessageBatchMaxSize(command.integer("batch", 1));
        // What the listener was given counts as consumed when the consumer is stopped.
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        consumer.setVipChannelEnabled(command.has("vip"));
        consumer.setMaxReconsumeTimes(command.integer("maxReconsumeTimes", -1));
        consumer.setSuspendCurrentQueueTimeMillis(command.integer("suspendMs", 100));
        setMessageModel(consumer, broadcasting ? "BROADCASTING" : "CLUSTERING");
        for (Map.Entry<String, String> topic : command.pairs("topics").entrySet()) {
            if (command.has("sql")) {
                consumer.subscribe(topic.getKey(), MessageSelector.bySql(topic.getValue()));
            } else {
                consumer.subscribe(topic.getKey(), topic.getValue());
            }
        }
        listen(consumer, new Failing(command, producers), command.text("mode", "concurrent"));
        consumer.start();
        running.put(name, consumer);
        if (!broadcasting) {
            takeRetryTopic(consumer);
        }
        return name;
    }

    Object assigned(Arguments command) {
        List<Object> queues = new ArrayList<>();
        for (MessageQueue queue : consumer(command).getDefaultMQPushConsumerImpl()
                .getRebalanceImpl().getProcessQueueTable().keySet()) {
            queues.add(Messages.write(queue));
        }
        return queues;
    }

    /** Looks for queues now, not when the 20 s are over. */
    Object rebalance(Arguments command) {
        consumer(command).getDefaultMQPushConsumerImpl().getmQClientFactory().rebalanceImmediately();
        return null;
    }

    Object stop(Arguments command) throws Exception {
        DefaultMQPushConsumer consumer = consumer(command);
        running.remove(command.text("name"));
        return Hurry.through(() -> {
            consumer.shutdown();
            return null;
        });
    }

    private DefaultMQPushConsumer consumer(Arguments command) {
        DefaultMQPushConsumer consumer = running.get(command.text("name"));
        if (consumer == null) {
            throw new IllegalArgumentException("no consumer " + command.text("name"));
        }
        return consumer;
    }

    private static void listen(DefaultMQPushConsumer consumer, Failing failing, String mode) {
        if (mode.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    failing.receive(messages)
                            ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                            : ConsumeOrderlyStatus.SUCCESS);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                    failing.receive(messages)
                            ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                            : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        }
    }

    /** The enum MessageModel lives in different packages in 4.9 and 5.x. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void setMessageModel(DefaultMQPushConsumer consumer, String model) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                Class<? extends Enum> type = (Class<? extends Enum>) method.getParameterTypes()[0];
                method.invoke(consumer, Enum.valueOf(type, model));
            }
        }
    }

    /**
     * Has a new group's retry topic assigned at once. The first heartbeat made that topic, but the client
     * looks for its route before that, and then only at the next rebalance, 20 s later.
     */
    private static void takeRetryTopic(DefaultMQPushConsumer consumer) throws InterruptedException {
        MQClientInstance client = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory();
        String topic = consumer.withNamespace("%RETRY%" + consumer.getConsumerGroup());
        long deadline = System.currentTimeMillis() + ROUTE_TIMEOUT_MS;
        while (!consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
                .getTopicSubscribeInfoTable().containsKey(topic)) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("no route to " + topic);
            }
            try {
                client.updateTopicRouteInfoFromNameServer(topic);
            } catch (IllegalStateException late) {
                // The name server has not answered within the client's 3 s; the deadline above counts.
            }
            Thread.sleep(10);
        }
        client.rebalanceImmediately();
    }

    /** A listener that reports every delivery and fails those it was told to fail. */
    private static final class Failing {
        private final String consumer;
        private final int times;
        private final String only;
        private final long pauseMs;
        private final String replyBy;
        private final Producers producers;

        Failing(Arguments command, Producers producers) {
            this.producers = producers;
            replyBy = command.text("replyBy", "");
            consumer = command.text("name");
            times = command.integer("failTimes", 0);
            only = command.text("failBody", "");
            pauseMs = command.whole("pauseMs", 0);
        }

        /** True when the messages are to fail: redelivered fewer than `failTimes` times, and with that body. */
        boolean receive(List<MessageExt> messages) {
            boolean fails = false;
            for (MessageExt message : messages) {
                boolean chosen = only.isEmpty() || Messages.text(message).equals(only);
                fails |= chosen && message.getReconsumeTimes() < times;
            }
            for (MessageExt message : messages) {
                Map<String, Object> event = Messages.write(message);
                event.put("event", "message");
                event.put("consumer", consumer);
                event.put("at", System.currentTimeMillis());
                event.put("batch", messages.size());
                event.put("failed", fails);
                PeerClient.print(event);
                fails |= !replied(message);
            }
            pause();
            return fails;
        }

        private boolean replied(MessageExt request) {
            try {
                if (!replyBy.isEmpty()) {
                    producers.reply(replyBy, request);
                }
                return true;
            } catch (Exception failure) {
                failure.printStackTrace();
                return false;
            }
        }

        private void pause() {
            if (pauseMs > 0) {
                try {
                    Thread.sleep(pauseMs);
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }
    }
}
