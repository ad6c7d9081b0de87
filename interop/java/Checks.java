package interop;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Runs named checks, each within its time, and prints how it went. */
final class Checks {
    private static final int LIMIT_SECONDS = 30;
    private final ExecutorService threads = Executors.newCachedThreadPool(body -> {
        Thread thread = new Thread(body);
        thread.setDaemon(true);
        return thread;
    });

    interface Body {
        void run() throws Exception;
    }

    void run(String name, Body body) {
        Future<?> running = threads.submit(() -> {
            body.run();
            return null;
        });
        try {
            running.get(LIMIT_SECONDS, TimeUnit.SECONDS);
            System.out.println("ok " + name);
        } catch (TimeoutException error) {
            running.cancel(true);
            System.out.println("FAILED " + name + ": not done within " + LIMIT_SECONDS + " s");
        } catch (ExecutionException error) {
            System.out.println("FAILED " + name + ": " + oneLine(error.getCause()));
            error.getCause().printStackTrace();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String oneLine(Throwable error) {
        return error.toString().replaceAll("\\s+", " ");
    }

    static void same(String what, Object found, Object expected) {
        if (!expected.equals(found)) {
            throw new AssertionError(what + " is " + found + ", not " + expected);
        }
    }

    static void holds(String what, boolean condition) {
        if (!condition) {
            throw new AssertionError("not so: " + what);
        }
    }

    /** The body must fail with that error, or with one that has it as its cause. */
    static void fails(Class<? extends Throwable> expected, Body body) throws Exception {
        try {
            body.run();
        } catch (Exception error) {
            for (Throwable at = error; at != null; at = at.getCause()) {
                if (expected.isInstance(at)) {
                    return;
                }
            }
            throw error;
        }
        throw new AssertionError("no " + expected.getSimpleName());
    }
}
