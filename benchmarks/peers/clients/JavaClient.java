import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Apache's Java client as a child of benchmarks.peers.worker; run from its source. */
public final class JavaClient {
    private static final byte[] BODY = String.join("", Collections.nCopies(128, "x")).getBytes();
    private static final PrintStream LINES = System.out;
    private static final OperatingSystemMXBean PROCESS =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private JavaClient() {}

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        DefaultMQProducer producer = new DefaultMQProducer("bench-java");
        producer.setNamesrvAddr(args[0]);
        producer.setVipChannelEnabled(false);
        producer.start();
        LINES.println("{}");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String task = text(line, "do");
            if (task.equals("consume")) {
                consume(args[0], text(line, "topic"), text(line, "group"), Long.parseLong(number(line, "messages")));
            } else {
                send(producer, task, Double.parseDouble(number(line, "seconds")));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void send(DefaultMQProducer producer, String task, double seconds) throws Exception {
        long begun = System.nanoTime();
        long cpu = PROCESS.getProcessCpuTime();
        long end = begun + (long) (seconds * 1e9);
        AtomicLong sent = new AtomicLong();
        List<Thread> senders = new ArrayList<>();
        int threads = task.equals("eight") ? 8 : 1;
        for (int i = 0; i < threads; i++) {
            Thread sender = new Thread(() -> {
                try {
                    while (System.nanoTime() < end) {
                        if (task.equals("batch")) {
                            List<Message> batch = new ArrayList<>();
                            for (int j = 0; j < 32; j++) {
                                batch.add(new Message("sent", BODY));
                            }
                            producer.send(batch);
                            sent.addAndGet(32);
                        } else {
                            producer.send(new Message("sent", BODY));
                            sent.incrementAndGet();
                        }
                    }
                } catch (Exception failure) {
                    failure.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            });
            senders.add(sender);
            sender.start();
        }
        for (Thread sender : senders) {
            sender.join();
        }
        print(sent.get(), System.nanoTime() - begun, PROCESS.getProcessCpuTime() - cpu);
    }

    private static void consume(String address, String topic, String group, long messages) throws Exception {
        AtomicLong seen = new AtomicLong();
        AtomicLong begun = new AtomicLong();
        AtomicLong cpu = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setVipChannelEnabled(false);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            if (begun.compareAndSet(0, System.nanoTime())) {
                cpu.set(PROCESS.getProcessCpuTime());
            }
            if (seen.addAndGet(batch.size()) == messages) {
                print(messages, System.nanoTime() - begun.get(), PROCESS.getProcessCpuTime() - cpu.get());
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await();
        new Thread(consumer::shutdown).start();
    }

    private static void print(long messages, long nanos, long cpuNanos) {
        LINES.println("{\"messages\":" + messages + ",\"seconds\":" + nanos / 1e9 + ",\"cpu\":" + cpuNanos / 1e9 + "}");
    }

    private static String text(String line, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": ?\"([^\"]*)\"").matcher(line);
        found.find();
        return found.group(1);
    }

    private static String number(String line, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": ?([0-9.]+)").matcher(line);
        found.find();
        return found.group(1);
    }
}
