package peers;

import io.github.resilience4j.bulkhead.Bulkhead;
import io.github.resilience4j.bulkhead.BulkheadConfig;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongFunction;

/** The workloads of bench/ for Java: resilience4j's semaphore bulkhead, and the Semaphore under it. */
public final class Main {
  interface Design {
    String name();

    void tries(int n); // n times: in and out again, if there is room

    default void acquire() {}

    default void release() {}

    default boolean waits() {
      return true;
    }
  }

  static final class Floor implements Design {
    private final AtomicLong count = new AtomicLong();

    public String name() {
      return "floor: getAndIncrement + getAndDecrement";
    }

    public void tries(int n) {
      for (int i = 0; i < n; ++i) {
        count.getAndIncrement();
        count.getAndDecrement();
      }
    }

    @Override
    public boolean waits() {
      return false;
    }
  }

  static final class Plain implements Design {
    private final Semaphore semaphore;

    Plain(int permits) {
      semaphore = new Semaphore(permits);
    }

    public String name() {
      return "java.util.concurrent.Semaphore";
    }

    public void tries(int n) {
      for (int i = 0; i < n; ++i) {
        if (semaphore.tryAcquire()) semaphore.release();
      }
    }

    @Override
    public void acquire() {
      semaphore.acquireUninterruptibly();
    }

    @Override
    public void release() {
      semaphore.release();
    }
  }

  static final class Resilience4j implements Design {
    private final Bulkhead atOnce;
    private final Bulkhead waiting;

    Resilience4j(int permits) {
      final BulkheadConfig.Builder config = BulkheadConfig.custom().maxConcurrentCalls(permits);
      atOnce = Bulkhead.of("at once", config.maxWaitDuration(Duration.ZERO).build());
      waiting = Bulkhead.of("waiting", config.maxWaitDuration(Duration.ofHours(1)).build());
    }

    public String name() {
      return "resilience4j bulkhead";
    }

    public void tries(int n) {
      for (int i = 0; i < n; ++i) {
        if (atOnce.tryAcquirePermission()) atOnce.onComplete();
      }
    }

    void hold() {
      atOnce.acquirePermission();
    }

    @Override
    public void acquire() {
      waiting.acquirePermission();
    }

    @Override
    public void release() {
      waiting.onComplete();
    }
  }

  static List<Design> designs(int permits) {
    return List.of(new Floor(), new Plain(permits), new Resilience4j(permits));
  }

  static double median(double[] v) {
    final double[] s = v.clone();
    Arrays.sort(s);
    return s[s.length / 2];
  }

  static void emit(String workload, int threads, int permits, String section, String design, String unit,
      double[] rounds, String more) {
    System.out.printf(Locale.ROOT,
        "{\"workload\":\"%s\",\"threads\":%d,\"permits\":%d,\"section\":\"%s\",\"design\":\"%s\",\"language\":\"Java\","
            + "\"unit\":\"%s\",\"median\":%f,\"rounds\":%s%s}%n",
        workload, threads, permits, section, design, unit, median(rounds), Arrays.toString(rounds), more);
  }

  /** Runs `body(thread)` on that number of threads at once; the wall time in ns. */
  static long together(int threads, LongFunction<Object> body) throws InterruptedException {
    final CountDownLatch ready = new CountDownLatch(threads);
    final List<Thread> all = new ArrayList<>();
    final AtomicLong start = new AtomicLong(Long.MAX_VALUE);
    for (int t = 0; t < threads; ++t) {
      final int thread = t;
      all.add(new Thread(() -> {
        ready.countDown();
        try {
          ready.await();
        } catch (InterruptedException e) {
          return;
        }
        start.accumulateAndGet(System.nanoTime(), Math::min);
        body.apply(thread);
      }));
    }
    for (Thread t : all) t.start();
    for (Thread t : all) t.join();
    return System.nanoTime() - start.get();
  }

  static double window(int threads, long ns, Design design) throws InterruptedException {
    final AtomicLong ops = new AtomicLong();
    final long wall = together(threads, t -> {
      final long until = System.nanoTime() + ns;
      long n = 0;
      while (System.nanoTime() < until) {
        design.tries(500);
        n += 500;
      }
      ops.addAndGet(n);
      return null;
    });
    return (double) wall / ops.get();
  }

  static void tries(String workload, int threads, int permits, String section, boolean full)
      throws InterruptedException {
    final List<Design> all = new ArrayList<>(designs(permits));
    if (full) {
      all.remove(0);
      all.get(0).acquire();
      ((Resilience4j) all.get(1)).hold();
    }
    for (int warm = 0; warm < 3; ++warm) for (Design d : all) window(threads, 100_000_000, d);
    final double[][] rounds = new double[all.size()][3];
    for (int round = 0; round < 3; ++round) {
      final double[][] windows = new double[all.size()][7];
      for (int i = 0; i < 7; ++i)
        for (int d = 0; d < all.size(); ++d) windows[d][i] = window(threads, 20_000_000, all.get(d));
      for (int d = 0; d < all.size(); ++d) rounds[d][round] = median(windows[d]);
    }
    for (int d = 0; d < all.size(); ++d)
      emit(workload, threads, permits, section, all.get(d).name(), "ns", rounds[d], "");
  }

  static volatile long sink;

  static void burn(long steps) {
    long x = steps;
    for (long i = 0; i < steps; ++i) x = x * 3 + (x >>> 7);
    sink = x;
  }

  static long stepsPerUs() {
    double best = 0;
    for (int i = 0; i < 500; ++i) {
      final long start = System.nanoTime();
      burn(20_000);
      best = Math.max(best, 20_000 / ((System.nanoTime() - start) / 1000.0));
    }
    return (long) best;
  }

  static void saturate(int threads, int permits, String name, Runnable section) throws InterruptedException {
    for (Design d : designs(permits)) {
      if (!d.waits()) continue;
      final double[] rounds = new double[3];
      final double[] fair = new double[3];
      double worst = 0;
      for (int round = -1; round < 3; ++round) { // one more to warm up
        final long[] counts = new long[threads];
        final long[] gaps = new long[threads];
        final long wall = together(threads, thread -> {
          final int t = (int) thread;
          long last = System.nanoTime();
          final long until = last + 200_000_000;
          while (last < until) {
            d.acquire();
            section.run();
            d.release();
            final long now = System.nanoTime();
            gaps[t] = Math.max(gaps[t], now - last);
            last = now;
            ++counts[t];
          }
          return null;
        });
        if (round < 0) continue;
        rounds[round] = wall / 1000.0 / Arrays.stream(counts).sum();
        fair[round] = (double) Arrays.stream(counts).max().orElse(0) / Math.max(Arrays.stream(counts).min().orElse(1), 1);
        worst = Math.max(worst, Arrays.stream(gaps).max().orElse(0) / 1e6);
      }
      emit("saturation", threads, permits, name, d.name(), "us", rounds,
          String.format(Locale.ROOT, ",\"max/min\":%f,\"worst ms\":%f", median(fair), worst));
    }
  }

  public static void main(String[] args) throws InterruptedException {
    for (int threads : new int[] {1, 2, 8}) tries("admit", threads, 1000, "empty", false);
    for (int threads : new int[] {1, 2}) tries("reject", threads, 1, "", true);
    final long us = stepsPerUs();
    saturate(8, 2, "empty", () -> {});
    saturate(8, 2, "1 us of work", () -> burn(us));
    saturate(8, 2, "20 us of work", () -> burn(20 * us));
    saturate(16, 4, "1 ms of sleep", () -> LockSupport.parkNanos(1_000_000));
  }
}
