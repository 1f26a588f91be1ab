package streamkit.peer;

import java.util.Arrays;

/**
 * One of Apache's programs, such as its name server or its broker, in a process of its own.
 *
 * <p>It prints READY once the program has started. The process lives until its standard input ends, so it never
 * outlives the test run that started it; SIGTERM shuts the program down in order.
 */
public final class ApacheProgram {
    private ApacheProgram() {}

    /** Arguments: the program's main class, and the arguments of that. */
    public static void main(String[] args) throws Exception {
        String[] others = Arrays.copyOfRange(args, 1, args.length);
        Class.forName(args[0]).getMethod("main", String[].class).invoke(null, (Object) others);
        System.out.println("READY");
        while (System.in.read() >= 0) {
            // Nothing is said to it.
        }
        Runtime.getRuntime().halt(0);
    }
}
