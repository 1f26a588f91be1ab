package streamkit.peer;

import java.util.concurrent.Callable;

/**
 * Makes shutdowns quick. Apache's remoting client, when it shuts down, waits for a thread that may just have
 * begun to poll its empty queue for 3 s; interrupted, that thread looks whether it is to end.
 */
final class Hurry {
    private static final String POLLING_THREAD = "NettyEventExecutor";
    private static final long EVERY_MS = 30;

    private Hurry() {}

    /** Runs a task that shuts a client down, without those 3 s. */
    static <T> T through(Callable<T> task) throws Exception {
        Thread hurrying = new Thread(Hurry::interruptPolling, "hurry");
        hurrying.setDaemon(true);
        hurrying.start();
        try {
            return task.call();
        } finally {
            hurrying.interrupt();
        }
    }

    private static void interruptPolling() {
        Thread[] threads = new Thread[1000];
        try {
            while (true) {
                Thread.sleep(EVERY_MS);
                int count = Thread.currentThread().getThreadGroup().enumerate(threads);
                for (int i = 0; i < count; i++) {
                    if (threads[i].getName().startsWith(POLLING_THREAD)) {
                        threads[i].interrupt();
                    }
                }
            }
        } catch (InterruptedException finished) {
            Thread.currentThread().interrupt();
        }
    }
}
