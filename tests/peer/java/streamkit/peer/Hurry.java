package streamkit.peer;

import java.util.concurrent.Callable;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * Makes shutdowns quick. Apache's remoting client, when it shuts down, joins a thread that may just have
 * begun to poll its empty queue for 3 s; interrupted, that thread looks whether it is to end. Apache's store sleeps for
 * 1 or 3 s before it shuts its services down, which wait for their work anyway.
 */
final class Hurry {
    private static final String POLLING_THREAD = "NettyEventExecutor";
    private static final String STORE = "org.apache.rocketmq.store.DefaultMessageStore";
    private static final long EVERY_MS = 30;

    private Hurry() {}

    /** Runs a task that shuts a client or a broker down, without those pauses. */
    static <T> T through(Callable<T> task) throws Exception {
        Thread shutting = Thread.currentThread();
        Thread hurrying = new Thread(() -> watch(shutting), "hurry");
        hurrying.setDaemon(true);
        hurrying.start();
        try {
            return task.call();
        } finally {
            hurrying.interrupt();
        }
    }

    private static void watch(Thread shutting) {
        try {
            while (true) {
                Thread.sleep(EVERY_MS);
                if (isIn(shutting, Thread.class, "join")) {
                    interruptPolling();
                } else if (isStoreAsleep(shutting)) {
                    shutting.interrupt();
                }
            }
        } catch (InterruptedException finished) {
            Thread.currentThread().interrupt();
        }
    }

    /** Interrupts only threads that poll: one that handles an event would lose its connection. */
    private static void interruptPolling() {
        Thread[] threads = new Thread[1000];
        int count = Thread.currentThread().getThreadGroup().enumerate(threads);
        for (int i = 0; i < count; i++) {
            if (threads[i].getName().startsWith(POLLING_THREAD)
                    && isIn(threads[i], LinkedBlockingQueue.class, "poll")) {
                threads[i].interrupt();
            }
        }
    }

    private static boolean isStoreAsleep(Thread thread) {
        boolean sleeps = false;
        for (StackTraceElement frame : thread.getStackTrace()) {
            if (!frame.getClassName().equals(Thread.class.getName())) {
                return sleeps && frame.getClassName().equals(STORE);
            }
            sleeps |= frame.getMethodName().equals("sleep");
        }
        return false;
    }

    private static boolean isIn(Thread thread, Class<?> type, String method) {
        for (StackTraceElement frame : thread.getStackTrace()) {
            if (frame.getClassName().equals(type.getName()) && frame.getMethodName().equals(method)) {
                return true;
            }
        }
        return false;
    }
}
