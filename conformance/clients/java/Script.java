import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;

/** Helpers for all scripts: servers by environment variable, parts by name, waiting for conditions. */
final class Script {
    interface Part {
        void run() throws Exception;
    }

    static String host(String name) {
        return System.getenv(name).replaceFirst(":\\d+$", "");
    }

    static int port(String name) {
        return Integer.parseInt(System.getenv(name).replaceFirst("^.*:", ""));
    }

    static void equal(Object given, Object expected) {
        if (!Objects.deepEquals(given, expected)) {
            throw new AssertionError(given + " instead of " + expected);
        }
    }

    static void holds(String what, boolean is) {
        if (!is) {
            throw new AssertionError("not so: " + what);
        }
    }

    /** Expects the call to fail with an error that contains these words, in itself or in its cause. */
    static void fails(Callable<?> call, String... words) throws Exception {
        Object given;
        try {
            given = call.call();
        } catch (Exception error) {
            StringBuilder texts = new StringBuilder();
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                texts.append(cause).append('\n');
            }
            for (String word : words) {
                holds(word + " in " + texts, texts.indexOf(word) >= 0);
            }
            return;
        }
        throw new AssertionError("no error with " + Arrays.toString(words) + ", but " + given);
    }

    /** Waits until the condition holds; it may throw in between. */
    static void until(String what, Callable<Boolean> holds) throws Exception {
        long end = System.nanoTime() + 20_000_000_000L;
        Exception problem = null;
        while (System.nanoTime() < end) {
            try {
                if (holds.call()) {
                    return;
                }
            } catch (Exception error) {
                problem = error;
            }
            Thread.sleep(10);
        }
        throw new AssertionError("not within 20 s: " + what, problem);
    }

    /** Asks the test, with a line of output, to restart the server on the same port. */
    static void restart() throws Exception {
        System.out.println("restart");
        while (System.in.read() != '\n') { }
    }

    /** All byte values, repeated up to this length. */
    static byte[] every(int bytes) {
        byte[] every = new byte[bytes];
        for (int index = 0; index < bytes; index++) {
            every[index] = (byte) index;
        }
        return every;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** Runs the parts named by the arguments; exits with 1 if one failed. */
    static void run(String[] names, Map<String, Part> parts) {
        int status = 0;
        for (String name : names) {
            try {
                parts.get(name).run();
                System.out.println("ok " + name);
            } catch (Exception | AssertionError error) {
                status = 1;
                System.out.println("failed " + name);
                error.printStackTrace(System.out);
            }
        }
        System.exit(status);
    }
}
