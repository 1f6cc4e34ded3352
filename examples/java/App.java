// Guarded work in Java: one unit at a time, only while this pod leads. Run it with `java App.java`.

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.regex.Pattern;

public class App {
    static final String URL =
            System.getenv().getOrDefault("TENURE_URL", "http://localhost:4040");
    static final HttpClient CLIENT = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .connectTimeout(Duration.ofSeconds(2))
            .build();

    record Grant(long epoch, long deadlineNanos) {}

    /** A grant of at most 2 s, or null. No answer is no grant. */
    static Grant ask() throws InterruptedException {
        long asked = System.nanoTime();
        try {
            var request = HttpRequest.newBuilder(URI.create(URL + "/leader?max_valid=2s"))
                    .timeout(Duration.ofSeconds(2))
                    .build();
            String said = CLIENT.send(request, BodyHandlers.ofString()).body();
            if (!Pattern.compile("\"leader\":\\s*true").matcher(said).find()) {
                return null;
            }
            long granted = number(said, "waited_ms") + number(said, "valid_for_ms");
            return new Grant(number(said, "epoch"), asked + granted * 1_000_000);
        } catch (java.io.IOException silence) {
            return null;
        }
    }

    /** A real app has a JSON library; the first such field of the answer will do here. */
    static long number(String said, String field) {
        var found = Pattern.compile("\"" + field + "\":\\s*(\\d+)").matcher(said);
        return found.find() ? Long.parseLong(found.group(1)) : 0;
    }

    /** One unit: much shorter than a grant, and with its epoch on every write. */
    static void work(Grant grant) throws InterruptedException {
        if (System.nanoTime() - grant.deadlineNanos() < 0) {
            System.out.println("work epoch=" + grant.epoch());
            Thread.sleep(200);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var stopped = new CountDownLatch(1);
        var main = Thread.currentThread();
        var stopping = new java.util.concurrent.atomic.AtomicBoolean();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping.set(true);
            try {
                stopped.await();
            } catch (InterruptedException ignored) {
                main.interrupt();
            }
        }));
        Grant working = null;
        while (!stopping.get()) {
            Grant grant = ask();
            if (grant != null) {
                work(grant);
            } else {
                if (working != null) {
                    System.out.println("stop");
                }
                Thread.sleep(200);
            }
            working = grant;
        }
        if (working != null) {
            // Nothing is running any more: let another lead at once.
            var body = HttpRequest.BodyPublishers.ofString("{\"epoch\": " + working.epoch() + "}");
            var request = HttpRequest.newBuilder(URI.create(URL + "/release")).POST(body).build();
            CLIENT.send(request, BodyHandlers.ofString());
        }
        stopped.countDown();
    }
}
